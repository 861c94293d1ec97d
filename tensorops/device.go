package tensorops

// Device computes. A process has one for each piece of hardware; stages share
// it, each through a Stream of its own.
type Device interface {
	// Name says what it is in a word, such as "cpu".
	Name() string
	// Path names the kernels in use, such as "avx2". Results are the same to
	// the last bit only within one path.
	Path() string
	// NewStream makes a stream; name is for messages.
	NewStream(name string) Stream
	// Memory tells how much is in use.
	Memory() MemoryStats
	// Close ends every stream. It waits for lists that run; lists that wait
	// fail with ErrClosed. Tensors that are left lose their memory.
	Close()
}

// MemoryStats counts bytes of device memory.
type MemoryStats struct {
	InUse  int64 // held by tensors
	Pooled int64 // free, kept for reuse
	Peak   int64 // the largest InUse
	Taken  int64 // the largest InUse + Pooled: what was asked of the system
	Limit  int64 // 0: none
}

// Stream executes lists in the order of their submission, and owns the pool of
// memory that its lists allocate from. Recording lists and submitting them is
// for one goroutine at a time; the rest is safe for concurrent use.
type Stream interface {
	// NewList returns an empty list that records for this stream.
	NewList() *List
	// Submit hands the list over and returns at once. done is called exactly
	// once and must not block: from the stream's goroutine, or before Submit
	// returns when the list is refused (ErrClosed, ErrQueueFull). The list
	// belongs to the device until then, and afterwards goes back to the
	// stream's pool of lists: keep no pointer to it.
	Submit(l *List, done func(error))
	// Arena is the stream's pool of memory.
	Arena() Arena
	// Close waits for the running list and ends the stream. Tensors of its arena stay:
	// another stream may be using one.
	Close()
}

// Queuer is a stream that starts a list the sooner if it was submitted while the lists before it are carried out, as
// a GPU's does, which else has nothing to do until the host has heard that they are complete.
type Queuer interface {
	// QueuesLists is how many lists are worth being submitted and not complete.
	QueuesLists() int
}

// CloseStream ends a stream and closes its arena, for a caller who knows that no other
// stream uses a tensor of it.
func CloseStream(s Stream) {
	s.Close()
	s.Arena().Close()
}

// Run submits a list and waits for it.
func Run(s Stream, l *List) error {
	ch := make(chan error, 1)
	s.Submit(l, func(err error) { ch <- err })
	return <-ch
}
