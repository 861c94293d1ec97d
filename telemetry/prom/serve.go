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
)

// ErrExposed: the address can be reached from other hosts, where metrics travel in the clear.
var ErrExposed = errors.New("metrics would be open to other hosts")

// Path is where Serve has the metrics.
const Path = "/metrics"

// Server serves a Collector over plain HTTP.
type Server struct {
	at     net.Addr
	server http.Server
	ended  chan struct{} // closed when it serves no more
}

// Serve listens at an address, host:port, whose port 0 is a free one. One that other hosts reach is
// refused as ErrExposed unless insecure is given: there is neither encryption nor a password.
// On loopback the request's Host has to be a name of this machine's, so that no page of
// the Web can read the metrics by a name of its own.
func Serve(address string, insecure bool, c *Collector) (*Server, error) {
	if !insecure && !config.OnLoopback(address) {
		return nil, fmt.Errorf("%w: %s is not on loopback", ErrExposed, address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	s := &Server{at: l.Addr(), ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, s.guard(c.Handler()))
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

// guard refuses requests that were led here by a name that anybody may have.
func (s *Server) guard(next http.Handler) http.Handler {
	at, err := netip.ParseAddrPort(s.at.String())
	local := err == nil && at.Addr().Unmap().IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local && !ownName(r.Host) {
			http.Error(w, "the metrics are at localhost: ask by this name, or by an address", http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// ownName reports whether nobody on the Internet can have a host's name: an address, a name
// without dots, or one that is reserved, as Docker's host.docker.internal is.
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

// URL is where the metrics are.
func (s *Server) URL() string { return "http://" + s.at.String() + Path }

// Close ends the server. Scrapes under way have a second.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	<-s.ended
}
