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

// NewToken makes a token that nobody guesses.
func NewToken() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails, as its documentation says
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// policy is what the page may load and do: its own files, and requests to its own server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// protect sets what every answer has.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// refusal is why a request is not answered.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// admit says why a request may not come in at all; page: it is for the page itself, which tells
// nothing of a run.
func (s *Server) admit(r *http.Request, page bool) error {
	if len(r.RequestURI) > limitURLBytes {
		return refuse(http.StatusRequestURITooLong, "the address has %d bytes, at most %d are read", len(r.RequestURI), limitURLBytes)
	}
	if q := r.URL.Query(); q.Has("token") || q.Has("access_token") {
		return refuse(http.StatusBadRequest,
			"there is a token in the address, where servers and histories keep it: leave it out; it belongs behind the #, and the page sends it as a header")
	}
	if s.o.Authorize == nil {
		if err := s.reached(r); err != nil {
			return err
		}
	}
	return sameSite(r, page)
}

// reached checks how the request has come. A page of another site that has its name resolve to
// this machine (DNS rebinding) still sends its own name as the host.
func (s *Server) reached(r *http.Request) error {
	if s.o.Remote {
		if r.TLS == nil {
			return refuse(http.StatusForbidden, "this server is answered over TLS only: take https")
		}
		return nil
	}
	host := hostname(r.Host)
	if slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host) || slices.Contains(s.o.Hosts, host) {
		return nil
	}
	return refuse(http.StatusForbidden,
		"the host is %.100q: this server answers to localhost, 127.0.0.1 and [::1] alone, so that no other site's name leads here", r.Host)
}

// hostname is a host without its port.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// sameSite refuses what a page of another origin has made the browser send. Another port of this
// machine is another origin. A link on another page may lead here.
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

// authorize says why a request may not have an access.
func (s *Server) authorize(r *http.Request, a Access) error {
	if a == Control {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return refuse(http.StatusUnsupportedMediaType, "the content type is %.60q: control takes application/json", r.Header.Get("Content-Type"))
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

// checkToken compares the token in a time that tells nothing of it.
func (s *Server) checkToken(r *http.Request, a Access) error {
	if s.o.Token == "" {
		return refuse(http.StatusForbidden, "%s is off: the server has no token", a)
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return refuse(http.StatusUnauthorized, "%s takes the token: open the link that the program has printed, or paste the token", a)
	}
	if len(given) > limitTokenBytes {
		given = ""
	}
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.o.Token))
	if subtle.ConstantTimeCompare(x[:], y[:]) != 1 {
		return refuse(http.StatusUnauthorized, "the token is not this server's: each start makes a new one")
	}
	return nil
}
