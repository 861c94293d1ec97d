package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// Options configures the device.
type Options struct {
	Device     int    // number of the GPU, counted from 0 as in the driver
	LimitBytes int64  // limit of tensor memory; 0: the GPU's memory
	Driver     string // path of the driver's library; empty: search the usual places
	NVRTC      string // path of the compiler's library; empty: search the usual places, otherwise use PTX; or NoNVRTC
	BLAS       string // path of cuBLASLt; empty: search the usual places, otherwise multiply without it; or NoBLAS
	GELU       GELU   // what computes a GELU after a product of cuBLASLt
	TF32       bool   // float32 products of cuBLASLt use 19 bits of each element
	Cache      string // folder for compiled kernels; empty: the user's cache folder
}

// NoNVRTC, as the path of NVRTC, selects the PTX kernels in the binary.
const NoNVRTC = "none"

// NoBLAS, as the path of cuBLASLt, selects the device's own kernels for products.
const NoBLAS = driver.None

// Device computes on one GPU.
type Device struct {
	driver  *driver.Driver
	gpu     *driver.Device
	target  string // what the kernels are compiled for
	context driver.Context
	modules *modules
	blas    blas
	memory  *tensorops.Memory
	peers   peers
	pieces  *pieces
	work    work
	// lockedMemory is page-locked memory of the host's, for what crosses to another device.
	lockedMemory   *tensorops.Memory
	host, pageable tensorops.Arena // for collectives: of it, and where there is none
	owner          *owner

	mu      sync.Mutex
	streams []*stream
	closing sync.Once
}

func (o Options) libraries() driver.Libraries {
	return driver.Libraries{Driver: o.Driver, NVRTC: o.NVRTC, BLAS: o.BLAS}
}

// New opens a GPU and compiles the kernels for it, if no earlier run did; without NVRTC it uses the
// PTX in the binary. It returns ErrUnavailable if there is no GPU.
func New(o Options) (*Device, error) {
	d, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return d, nil
}

func open(o Options) (*Device, error) {
	if o.LimitBytes < 0 {
		return nil, fmt.Errorf("the limit is %d bytes: set 1 or more, or 0 for the GPU's memory", o.LimitBytes)
	}
	drv, err := driver.Open(o.libraries())
	if err != nil {
		return nil, err
	}
	gpu, err := drv.Device(o.Device)
	if err != nil {
		return nil, err
	}
	from := newSource(drv, o.LimitBytes)
	d := &Device{driver: drv, gpu: gpu, memory: from.memory, pieces: &from.pieces}
	from.device, d.lockedMemory = d, tensorops.NewMemory(lockedSource{drv}, 0)
	d.host, d.pageable = d.lockedMemory.NewArena("collectives"), tensorops.NewHostMemory(0).NewArena("collectives")
	if d.target, d.modules, err = o.kernels(drv, gpu); err != nil {
		return nil, err
	}
	if d.blas, err = openBLAS(o, drv); err != nil {
		return nil, err
	}
	from.graphs = d.dropGraphs
	d.pieces.begin(d)
	d.owner, err = newOwner(d.enter, d.leave)
	return d, err
}

// enter makes the context, current on the owner's thread.
func (d *Device) enter() (err error) {
	if d.context, err = d.driver.Retain(d.gpu); err != nil {
		return err
	}
	if err = d.driver.Use(d.context); err == nil {
		if err = d.blas.begin(); err != nil {
			_ = d.driver.Use(0)
		}
	}
	if err != nil {
		return errors.Join(err, d.driver.Release(d.gpu))
	}
	return nil
}

// leave gives back all that is left on the device, and the context.
func (d *Device) leave() {
	// What one of these calls cannot give back, the process's end does.
	d.modules.close()
	d.blas.end()
	d.memory.Close()
	d.lockedMemory.Close()
	_ = d.driver.Use(0)
	_ = d.driver.Release(d.gpu)
}

// Name returns "cuda".
func (d *Device) Name() string { return "cuda" }

// Ordinal returns the number of the GPU, counted from 0 as in the driver.
func (d *Device) Ordinal() int { return d.gpu.Ordinal }

// Path returns the target of the kernels and the library of products, such as "cuda-sm_90" or
// "cuda-sm_90-cublaslt-12.9".
func (d *Device) Path() string { return pathOf(d.target, &d.blas) }

func pathOf(target string, b *blas) string { return "cuda-" + target + b.suffix(target) }

// HasBLAS reports whether cuBLASLt computes the products.
func (d *Device) HasBLAS() bool { return d.blas.isThere() }

// MultipliesBF16 reports whether the device's own bfloat16 products use tensor cores.
func (d *Device) MultipliesBF16() bool { return multipliesBF16(d.target) }

// Memory returns how much tensor memory is in use.
func (d *Device) Memory() tensorops.MemoryStats { return d.memory.Stats() }

// TakenBy returns the largest amount of tensor memory that streams of each name have taken at a
// time, in bytes.
func (d *Device) TakenBy() map[string]int64 { return d.memory.TakenBy() }

// FreeBytes returns the free memory of the GPU, or what the limit leaves of it, in bytes.
func (d *Device) FreeBytes() (free int64, err error) {
	err = d.owner.call(func() (err error) {
		free, _, err = d.driver.MemoryInfo()
		return err
	})
	if s := d.Memory(); s.Limit > 0 {
		free = min(free, s.Limit-s.InUse)
	}
	return free, err
}

// NewStream starts a stream. Its goroutine ends with Close.
func (d *Device) NewStream(name string) tensorops.Stream {
	s := newStream(d, name)
	d.mu.Lock()
	d.streams = append(d.streams, s)
	d.mu.Unlock()
	return s
}

// dropGraphs gives back the graphs of all streams, on the owner's thread.
func (d *Device) dropGraphs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.streams {
		s.exec.dropGraphs()
	}
}

// forget drops a stream that has ended.
func (d *Device) forget(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams = slices.DeleteFunc(d.streams, func(other *stream) bool { return other == s })
}

// Close closes the streams and releases the GPU. The memory of remaining tensors is freed.
func (d *Device) Close() {
	d.closing.Do(func() {
		d.mu.Lock()
		streams := d.streams
		d.streams = nil
		d.mu.Unlock()
		for _, s := range streams {
			s.Close()
		}
		d.pieces.close()
		d.owner.close()
	})
}
