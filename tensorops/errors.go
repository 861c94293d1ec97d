package tensorops

import "errors"

// The errors of this package.
var (
	// ErrShape: the shapes or types of an operation's operands don't fit.
	ErrShape = errors.New("shapes do not fit")
	// ErrOutOfMemory: the device's memory limit is reached.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrToken: a token or target id is outside the vocabulary.
	ErrToken = errors.New("token id outside the vocabulary")
	// ErrRoute: places or offsets of experts' rows contradict the rows.
	ErrRoute = errors.New("impossible places of experts' rows")
	// ErrClosed: the stream or device was closed.
	ErrClosed = errors.New("device stream is closed")
	// ErrUnsupported: this device does not support the operation.
	ErrUnsupported = errors.New("operation not supported by this device")
	// ErrQueueFull: more than LimitStreamQueue submitted lists are waiting.
	ErrQueueFull = errors.New("stream queue is full")
)
