package ref

import (
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// device computes in float64, one goroutine a stream.
type device struct {
	memory *tensorops.Memory

	mu      sync.Mutex
	streams []*stream
	closed  bool
}

// New makes the oracle, a Device without a memory limit.
func New() tensorops.Device {
	return &device{memory: tensorops.NewHostMemory(0)}
}

// Name returns "ref".
func (d *device) Name() string { return "ref" }

// Path returns "float64", the only path.
func (d *device) Path() string { return "float64" }

// Memory returns how much tensor memory is in use.
func (d *device) Memory() tensorops.MemoryStats { return d.memory.Stats() }

// NewStream starts a stream. Its goroutine ends with Close.
func (d *device) NewStream(name string) tensorops.Stream {
	s := newStream(name, d.memory.NewArena(name))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		s.Close()
	}
	d.streams = append(d.streams, s)
	return s
}

// Close closes every stream, and frees all tensors' memory.
func (d *device) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, s := range d.streams {
		s.Close()
	}
	d.streams = nil
	d.memory.Close()
}
