package cluster

import (
	"errors"

	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
)

// Errors of requests to a coordinator.
var (
	// ErrRequest: the request is invalid, or the coordinator can't carry it out.
	ErrRequest = apiwire.ErrRequest
	// ErrForbidden: the client's role may not make this request.
	ErrForbidden = apiwire.ErrForbidden
	// ErrNoRun: there is no such run.
	ErrNoRun = apiwire.ErrNoRun
	// ErrClosing: the coordinator is stopping. Runs in progress resume when it restarts.
	ErrClosing = apiwire.ErrClosing
	// ErrSlow: the client read events or log records too slowly and was disconnected.
	ErrSlow = apiwire.ErrSlow
	// ErrLost: the coordinator can't be reached, or has closed the connection.
	ErrLost = errors.New("the coordinator can't be reached")
	// ErrTryAgain: the request failed for a reason that may go away, such as another process that
	// uses the output folder.
	ErrTryAgain = apiwire.ErrTryAgain
)
