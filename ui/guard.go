package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
)

// NewToken returns a random access token.
func NewToken() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails, as its documentation says
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// policy limits the page to its own files and to requests to its own server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// protect sets the security headers of every response.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// refusal is an error with an HTTP status.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// admit returns an error if a request is refused whatever its access. page: it is for the page itself, which has no
// data of a run.
func (s *Server) admit(r *http.Request, page bool) error {
	if len(r.RequestURI) > limitURLBytes {
		return refuse(http.StatusRequestURITooLong, "the address has %d bytes, the limit is %d", len(r.RequestURI), limitURLBytes)
	}
	if q := r.URL.Query(); q.Has("token") || q.Has("access_token") {
		return refuse(http.StatusBadRequest,
			"the address contains a token, which servers and browser histories would store: remove it; put it after the #, and the page sends it as a header")
	}
	if s.o.Authorize == nil {
		if err := s.reached(r); err != nil {
			return err
		}
	}
	return sameSite(r, page)
}

// reached checks TLS and the host name. A page of another site whose name resolves to this machine (DNS rebinding)
// still sends its own name as the host.
func (s *Server) reached(r *http.Request) error {
	if s.o.Remote {
		if r.TLS == nil {
			return refuse(http.StatusForbidden, "this server answers only over TLS: use https")
		}
		return nil
	}
	host := hostname(r.Host)
	if slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host) || slices.Contains(s.o.Hosts, host) {
		return nil
	}
	return refuse(http.StatusForbidden,
		"host %.100q is not allowed: open this server as localhost, 127.0.0.1 or [::1], which protects it from DNS rebinding", r.Host)
}

// hostname returns a host without its port.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// sameSite refuses requests that a page of another origin made the browser send. Another port of this machine is
// another origin. Links from other pages to the page itself are allowed.
func sameSite(r *http.Request, page bool) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		if !page || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return refuse(http.StatusForbidden, "the request comes from another site (Sec-Fetch-Site: %.40s)", site)
		}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	_, host, ok := strings.Cut(origin, "://")
	if !ok || !strings.EqualFold(host, r.Host) {
		return refuse(http.StatusForbidden, "the request comes from another site (Origin: %.100q)", origin)
	}
	return nil
}

// authorize returns an error if a request may not have an access.
func (s *Server) authorize(r *http.Request, a Access) error {
	if a == Control {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return refuse(http.StatusUnsupportedMediaType, "content type %.60q: control requests need application/json",
				r.Header.Get("Content-Type"))
		}
	}
	if s.o.Authorize != nil {
		if err := s.o.Authorize(r, a); err != nil {
			return &refusal{http.StatusForbidden, err.Error()}
		}
		return nil
	}
	if a == Read && !s.o.Remote {
		return nil
	}
	return s.checkToken(r, a)
}

// checkToken compares the token in constant time.
func (s *Server) checkToken(r *http.Request, a Access) error {
	if s.o.Token == "" {
		return refuse(http.StatusForbidden, "%s is off: the server has no token", a)
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return refuse(http.StatusUnauthorized, "%s needs the access token: open the link that the server printed, or paste the token", a)
	}
	if len(given) > limitTokenBytes {
		given = ""
	}
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.o.Token))
	if subtle.ConstantTimeCompare(x[:], y[:]) != 1 {
		return refuse(http.StatusUnauthorized, "this server does not accept the token: open the link that it printed")
	}
	return nil
}
