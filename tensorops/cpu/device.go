package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// Options configures the device.
type Options struct {
	Threads    int    // number of cores; 0: all that the process may use
	Kernels    string // "auto", or one of Paths
	LimitBytes int64  // limit of tensor memory; 0: none
}

// ErrKernels: the kernel path is unknown, or this processor cannot run it.
var ErrKernels = errors.New("kernel path not available")

// Device computes on the machine's cores.
type Device struct {
	cores   *cores
	kernels *kernels
	memory  *tensorops.Memory
	angles  angleCache

	mu      sync.Mutex
	streams []*stream
}

// Paths returns the kernel paths that this processor can run, best first.
func Paths() []string {
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names
}

// PathInfo says whether this machine can run a kernel path.
type PathInfo struct {
	Name      string
	Available bool
	Why       string // the required instructions, and whether they exist
}

// Explain returns the kernel paths of this architecture, best first; "auto" chooses the first
// available one.
func Explain() []PathInfo {
	var infos []PathInfo
	for _, p := range paths() {
		i := PathInfo{Name: p.kernels.name, Available: p.has}
		switch {
		case p.needs == "":
			i.Why = "runs everywhere"
		case p.has:
			i.Why = "the processor has " + p.needs
		default:
			i.Why = "the processor or the system does not support all of " + p.needs
		}
		infos = append(infos, i)
	}
	return infos
}

// New makes a device. It returns ErrKernels for an unavailable kernel path.
func New(o Options) (*Device, error) {
	k, err := choose(o.Kernels)
	if err != nil {
		return nil, err
	}
	if o.Threads < 0 {
		return nil, fmt.Errorf("cpu: there are %d threads: set 1 or more, or 0 for all cores", o.Threads)
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	return &Device{cores: newCores(o.Threads), kernels: k, memory: tensorops.NewHostMemory(o.LimitBytes)}, nil
}

// choose finds a kernel path by name.
func choose(name string) (*kernels, error) {
	all := available()
	if name == "" || name == "auto" {
		return all[0], nil
	}
	i := slices.IndexFunc(all, func(k *kernels) bool { return k.name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: kernels = %q: this machine has auto, %s", ErrKernels, name, strings.Join(Paths(), ", "))
	}
	return all[i], nil
}

// MultipliesBF16 reports whether a kernel path, given by its name or "auto", has instructions for
// products of bfloat16. Such a path reads packed bfloat16.
func MultipliesBF16(kernels string) bool {
	k, err := choose(kernels)
	return err == nil && k.fastBF16
}

// Name returns "cpu".
func (d *Device) Name() string { return "cpu" }

// Path returns the name of the kernels in use.
func (d *Device) Path() string { return d.kernels.name }

// FastBF16 reports whether products of bfloat16 are faster than those of float32.
func (d *Device) FastBF16() bool {
	return d.kernels.fastBF16
}

// Threads returns the number of cores in use.
func (d *Device) Threads() int { return d.cores.threads }

// Memory returns how much tensor memory is in use.
func (d *Device) Memory() tensorops.MemoryStats { return d.memory.Stats() }

// TakenBy returns the largest amount of tensor memory that streams of each name have taken at a
// time, in bytes.
func (d *Device) TakenBy() map[string]int64 { return d.memory.TakenBy() }

// NewStream starts a stream. Its goroutine ends with Close.
func (d *Device) NewStream(name string) tensorops.Stream {
	s := newStream(d, name)
	d.mu.Lock()
	d.streams = append(d.streams, s)
	d.mu.Unlock()
	return s
}

// Close closes the streams, ends the helper goroutines, and frees all tensors' memory.
func (d *Device) Close() {
	d.mu.Lock()
	streams := d.streams
	d.streams = nil
	d.mu.Unlock()
	for _, s := range streams {
		s.Close()
	}
	d.cores.close()
	d.memory.Close()
}
