package guard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// LimitTokenBytes is the most bytes of a token.
const LimitTokenBytes = 1 << 10

// Refusal is an error with an HTTP status.
type Refusal struct {
	Status int
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// Refuse returns a Refusal.
func Refuse(status int, format string, args ...any) error {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// NewToken returns a random access token.
func NewToken() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails, as its documentation says
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Bearer returns the token in a request's header.
func Bearer(r *http.Request) (token string, ok bool) {
	return strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// SameToken compares tokens in constant time.
func SameToken(given, want string) bool {
	if len(given) > LimitTokenBytes {
		given = ""
	}
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Reached checks TLS and the host name. A page of another site whose name resolves to this machine (DNS rebinding)
// still sends its own name as the host. hosts are further names of a server on loopback.
func Reached(r *http.Request, remote bool, hosts []string) error {
	if remote {
		if r.TLS == nil {
			return Refuse(http.StatusForbidden, "this server answers only over TLS: use https")
		}
		return nil
	}
	host := Hostname(r.Host)
	if slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host) || slices.Contains(hosts, host) {
		return nil
	}
	return Refuse(http.StatusForbidden,
		"host %.100q is not allowed: open this server as localhost, 127.0.0.1 or [::1], which protects it from DNS rebinding", r.Host)
}

// Hostname returns a host without its port.
func Hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// SameSite refuses requests that a page of another origin made the browser send. Another port of this machine is
// another origin. Links from other pages to a page itself are allowed.
func SameSite(r *http.Request, page bool) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		if !page || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return Refuse(http.StatusForbidden, "the request comes from another site (Sec-Fetch-Site: %.40s)", site)
		}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	_, host, ok := strings.Cut(origin, "://")
	if !ok || !strings.EqualFold(host, r.Host) {
		return Refuse(http.StatusForbidden, "the request comes from another site (Origin: %.100q)", origin)
	}
	return nil
}
