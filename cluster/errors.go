package cluster

import (
	"errors"

	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
)

// Errors of what is asked of a coordinator.
var (
	// ErrRequest: what was asked makes no sense.
	ErrRequest = apiwire.ErrRequest
	// ErrForbidden: the role of who asks may not do it.
	ErrForbidden = apiwire.ErrForbidden
	// ErrNoRun: there is no such run.
	ErrNoRun = apiwire.ErrNoRun
	// ErrClosing: the coordinator ends. Runs in progress go on when it is started again.
	ErrClosing = apiwire.ErrClosing
	// ErrSlow: what was followed came faster than it was read.
	ErrSlow = apiwire.ErrSlow
	// ErrLost: the coordinator can't be reached, or is gone.
	ErrLost = errors.New("the coordinator can't be reached")
	// ErrTryAgain: something that may pass was in the way, such as another process that uses
	// the output folder.
	ErrTryAgain = apiwire.ErrTryAgain
)
