package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/base/guard"
)

// apiError is an error as clients of the API expect it.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the key of the request that is wrong
	Code    *string `json:"code"`
	status  int
	cause   string // for the log: it may name files of the server
}

func (e *apiError) Error() string { return e.Message }

// The types of errors.
const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
	tooMany        = "rate_limit_error"
)

// bad is an error in a request; param is the key, or "".
func bad(param, format string, args ...any) error {
	e := &apiError{Message: fmt.Sprintf(format, args...), Type: invalidRequest, status: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
	}
	return e
}

func (e *apiError) withCode(code string) *apiError {
	e.Code = &code
	return e
}

// errorOf returns an error in the form of the API, with its status.
func errorOf(err error) *apiError {
	var e *apiError
	var no *guard.Refusal
	var large *http.MaxBytesError
	var setup *infer.SetupError
	of := func(status int, kind string) *apiError {
		return &apiError{Message: err.Error(), Type: kind, status: status}
	}
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &no):
		e = of(no.Status, invalidRequest)
		if no.Status == http.StatusUnauthorized {
			return e.withCode("invalid_api_key")
		}
		return e
	case errors.As(err, &large):
		e = of(http.StatusRequestEntityTooLarge, invalidRequest)
		e.Message = fmt.Sprintf("the request's body is larger than the limit of %d bytes", large.Limit)
		return e
	case errors.Is(err, infer.ErrBusy):
		return of(http.StatusTooManyRequests, tooMany).withCode("rate_limit_exceeded")
	case errors.Is(err, infer.ErrContext):
		return of(http.StatusBadRequest, invalidRequest).withCode("context_length_exceeded")
	case errors.Is(err, infer.ErrMemory):
		e = of(http.StatusServiceUnavailable, serverError)
		e.Message = "the server has no memory for this text at the moment: try again later, or use a shorter prompt and fewer tokens"
		return e
	case errors.Is(err, infer.ErrNoTemplate):
		e = of(http.StatusBadRequest, invalidRequest)
		e.Message = "the model has no chat template: use /v1/completions"
		return e
	case errors.Is(err, infer.ErrTemplate):
		e = of(http.StatusInternalServerError, serverError)
		e.Message, e.cause = "the model's chat template can't be used; the server's log says why. Use /v1/completions", err.Error()
		return e
	case errors.Is(err, infer.ErrOptions), errors.As(err, &setup):
		return of(http.StatusBadRequest, invalidRequest)
	case errors.Is(err, fs.ErrClosed), errors.Is(err, context.Canceled):
		e = of(http.StatusServiceUnavailable, serverError)
		e.Message = "the server is shutting down"
		return e
	}
	e = of(http.StatusInternalServerError, serverError)
	e.Message, e.cause = "the server failed; its log says why", err.Error()
	return e
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, err error) {
	e := errorOf(err)
	switch e.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusInternalServerError:
		s.o.Log("answer a request: " + e.cause)
	}
	s.refused.Add(1)
	s.send(w, e.status, map[string]*apiError{"error": e})
}

// send answers with JSON.
func (s *Server) send(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = s.deadline(w)                // without one the write may fail as well
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
