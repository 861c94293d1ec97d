package tensorops

// Device is hardware that computes, such as the CPU or one GPU. A process has one Device for each;
// its stages share it, each with its own Stream.
type Device interface {
	// Name is a one-word name, such as "cpu".
	Name() string
	// Path names the kernels in use, such as "avx2". Results are bit-identical only within one
	// path.
	Path() string
	// NewStream makes a stream; name is used in messages.
	NewStream(name string) Stream
	// Memory returns how much memory is in use.
	Memory() MemoryStats
	// Close closes every stream. It waits for running lists; queued lists fail with ErrClosed. The
	// memory of remaining tensors is freed.
	Close()
}

// MemoryStats counts device memory in bytes.
type MemoryStats struct {
	InUse  int64 // held by tensors
	Pooled int64 // free, kept for reuse
	Peak   int64 // the largest InUse
	Taken  int64 // the largest InUse + Pooled: taken from the system
	Limit  int64 // 0: none
}

// Stream executes lists in the order of their submission, and owns the memory pool from which its
// lists allocate. One goroutine at a time may record and submit lists; the other methods are safe
// for concurrent use.
type Stream interface {
	// NewList returns an empty list that records for this stream.
	NewList() *List
	// Submit queues the list and returns at once. done is called exactly once and must not block.
	// It is called from the stream's goroutine or, if the list is refused (ErrClosed,
	// ErrQueueFull), before Submit returns. Until then the list belongs to the device; afterwards
	// the stream reuses it. So keep no pointer to it.
	Submit(l *List, done func(error))
	// Arena returns the stream's memory pool.
	Arena() Arena
	// Close waits for the running list and closes the stream. Tensors of its arena remain, since
	// another stream may use them.
	Close()
}

// Queuer is a stream that works better if lists are submitted before earlier ones have completed. A
// GPU's stream is one: otherwise the GPU idles until the host has learned that a list is complete.
type Queuer interface {
	// QueuesLists returns how many submitted lists should be incomplete at a time.
	QueuesLists() int
}

// CloseStream closes a stream and its arena. The caller must know that no other stream uses a
// tensor of the arena.
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
