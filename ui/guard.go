package ui

import (
	"mime"
	"net/http"

	"github.com/troupe-ml/troupe/internal/base/guard"
)

// NewToken returns a random access token.
func NewToken() string { return guard.NewToken() }

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

// refuse returns an error with an HTTP status.
func refuse(status int, format string, args ...any) error {
	return guard.Refuse(status, format, args...)
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
		if err := guard.Reached(r, s.o.Remote, s.o.Hosts); err != nil {
			return err
		}
	}
	return guard.SameSite(r, page)
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
			return refuse(http.StatusForbidden, "%v", err)
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
	given, ok := guard.Bearer(r)
	if !ok {
		return refuse(http.StatusUnauthorized, "%s needs the access token: open the link that the server printed, or paste the token", a)
	}
	if !guard.SameToken(given, s.o.Token) {
		return refuse(http.StatusUnauthorized, "this server does not accept the token: open the link that it printed")
	}
	return nil
}
