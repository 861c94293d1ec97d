package prom

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/netutil"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry/health"
)

// ErrExposed means that other hosts can reach the address, and would read the metrics without TLS.
var ErrExposed = errors.New("other hosts could read the metrics")

// Path is the path of the metrics.
const Path = "/metrics"

// Server serves a Collector and the health of the process over plain HTTP.
type Server struct {
	at     net.Addr
	server http.Server
	ended  chan struct{} // closed when the server has stopped
}

// Served is what ServeAll serves.
type Served struct {
	Collector *Collector
	// Health answers at health.LivePath and health.ReadyPath; nil: these paths are not served.
	Health *health.Health
}

// Serve starts a server at an address HOST:PORT; port 0 picks a free port. It has neither encryption nor a password,
// so it fails with ErrExposed for an address that other hosts can reach, unless insecure is true. On loopback it
// accepts only requests whose Host is a name of this machine, so that no web page can read the metrics through DNS
// rebinding.
func Serve(address string, insecure bool, c *Collector) (*Server, error) {
	return ServeAll(address, insecure, Served{Collector: c})
}

// ServeAll is Serve, with the health of the process. "/" lists the paths.
func ServeAll(address string, insecure bool, all Served) (*Server, error) {
	if !insecure && !config.OnLoopback(address) {
		return nil, fmt.Errorf("%w: %s is not on loopback", ErrExposed, address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	s := &Server{at: l.Addr(), ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, s.guard(all.Collector.Handler()))
	paths := Path + "  metrics for Prometheus\n"
	if all.Health != nil {
		mux.Handle("GET "+health.LivePath, s.guard(all.Health.Live()))
		mux.Handle("GET "+health.ReadyPath, s.guard(all.Health.Ready()))
		paths += health.LivePath + "  200 if the process works, else 503: restart it\n" +
			health.ReadyPath + "   200 if it can do its job now, else 503; both name what fails, as JSON\n"
	}
	mux.Handle("GET /{$}", s.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(paths)) // a client that has gone needs no answer
	})))
	s.server = http.Server{Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: scrapeTime, WriteTimeout: scrapeTime,
		IdleTimeout:    idleTime,
		MaxHeaderBytes: limitHeaderBytes, ErrorLog: log.New(discard{}, "", 0)}
	go func() { // ends with Close
		defer close(s.ended)
		_ = s.server.Serve(netutil.LimitListener(l, limitConnections))
	}()
	return s, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// guard refuses requests to a host name that can be registered on the Internet.
func (s *Server) guard(next http.Handler) http.Handler {
	at, err := netip.ParseAddrPort(s.at.String())
	local := err == nil && at.Addr().Unmap().IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local && !ownName(r.Host) {
			http.Error(w, "use localhost or an IP address as the host name to read the metrics", http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// ownName reports whether a host name cannot be registered on the Internet: an address, a name without dots, or a
// reserved name such as Docker's host.docker.internal.
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".internal")
}

// URL returns the address of the metrics.
func (s *Server) URL() string { return "http://" + s.at.String() + Path }

// Close stops the server. It waits up to a second for active scrapes.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	<-s.ended
}
