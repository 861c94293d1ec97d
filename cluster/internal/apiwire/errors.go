// Package apiwire encodes and decodes the parts of a coordinator's replies to clients: errors, events, statuses and
// traces. It must never know connections or permissions.
package apiwire

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Errors of requests to a coordinator. Package cluster documents them under the same names.
var (
	ErrRequest   = errors.New("the coordinator can't do that")
	ErrForbidden = errors.New("not allowed")
	ErrNoRun     = errors.New("no such run")
	ErrClosing   = errors.New("the coordinator is stopping")
	ErrSlow      = errors.New("disconnected: this client read too slowly")
	ErrTryAgain  = errors.New("try again")
	// ErrEnded: the coordinator is closed. It arrives as ErrClosing.
	ErrEnded = errors.New("the coordinator has stopped")
)

// PackError encodes an error; nil stays nil.
func PackError(err error) *wire.ApiError {
	if err == nil {
		return nil
	}
	e := &wire.ApiError{Kind: kindOf(err)}
	var all config.Errors
	if errors.As(err, &all) && all.Error() == err.Error() {
		for _, one := range all {
			e.Texts = append(e.Texts, one.Error())
		}
	} else {
		e.Texts = []string{err.Error()}
	}
	if more := len(e.Texts) - limitErrorTexts; more > 0 {
		e.Texts = append(e.Texts[:limitErrorTexts], fmt.Sprintf("and %d more", more))
	}
	for i, text := range e.Texts {
		e.Texts[i] = words.Cut(text, LimitErrorBytes)
	}
	return e
}

func kindOf(err error) wire.ApiError_Kind {
	var key *config.Error
	var setup *troupe.SetupError
	switch {
	case errors.Is(err, actors.ErrKilled):
		return wire.ApiError_KILLED
	case errors.Is(err, troupe.ErrNoWorkers):
		return wire.ApiError_NO_WORKERS
	case errors.Is(err, ErrTryAgain), checkpoint.TryAgain(err):
		return wire.ApiError_TRY_AGAIN
	case errors.As(err, &key):
		return wire.ApiError_CONFIG
	case errors.Is(err, troupe.ErrOptions):
		return wire.ApiError_OPTIONS
	case errors.As(err, &setup):
		return wire.ApiError_CONFIG
	case errors.Is(err, ErrRequest):
		return wire.ApiError_REQUEST
	case errors.Is(err, ErrForbidden):
		return wire.ApiError_FORBIDDEN
	case errors.Is(err, ErrNoRun):
		return wire.ApiError_NO_RUN
	case errors.Is(err, ErrSlow):
		return wire.ApiError_SLOW
	case errors.Is(err, ErrClosing), errors.Is(err, ErrEnded):
		return wire.ApiError_CLOSING
	}
	return wire.ApiError_FAILED
}

// kinds are the sentinel errors of the kinds.
var kinds = map[wire.ApiError_Kind]error{
	wire.ApiError_REQUEST: ErrRequest, wire.ApiError_FORBIDDEN: ErrForbidden, wire.ApiError_NO_RUN: ErrNoRun, wire.ApiError_SLOW: ErrSlow,
	wire.ApiError_CLOSING:    ErrClosing,
	wire.ApiError_NO_WORKERS: troupe.ErrNoWorkers, wire.ApiError_KILLED: actors.ErrKilled, wire.ApiError_OPTIONS: troupe.ErrOptions,
	wire.ApiError_TRY_AGAIN: ErrTryAgain,
}

// UnpackError decodes an error; nil stays nil.
func UnpackError(e *wire.ApiError) error {
	if e == nil {
		return nil
	}
	texts := make([]error, 0, len(e.GetTexts()))
	for _, text := range e.GetTexts() {
		texts = append(texts, errors.New(text))
	}
	if len(texts) == 0 {
		texts = append(texts, errors.New("the coordinator gives no reason"))
	}
	err := errors.Join(texts...)
	if e.GetKind() == wire.ApiError_CONFIG {
		return &troupe.SetupError{Err: err}
	}
	if of := kinds[e.GetKind()]; of != nil {
		return &remoteError{err, of}
	}
	return err
}

// remoteError has the text and the kind of the coordinator's error.
type remoteError struct{ err, kind error }

func (e *remoteError) Error() string        { return e.err.Error() }
func (e *remoteError) Is(target error) bool { return errors.Is(e.kind, target) }
func (e *remoteError) Unwrap() error        { return e.err }
