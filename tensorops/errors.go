package tensorops

import "errors"

// Errors that callers branch on.
var (
	// ErrShape: the shapes or types of an operation's operands don't fit.
	ErrShape = errors.New("shapes do not fit")
	// ErrOutOfMemory: the device's memory limit is reached.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrToken: a token or target id lies outside of the vocabulary.
	ErrToken = errors.New("token id outside of the vocabulary")
	// ErrClosed: the stream or device was closed.
	ErrClosed = errors.New("device stream is closed")
	// ErrUnsupported: this device does not know the operation.
	ErrUnsupported = errors.New("operation not supported by this device")
	// ErrQueueFull: more lists were submitted than LimitStreamQueue.
	ErrQueueFull = errors.New("stream queue is full")
)
