package troupe

import (
	"os"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// Device is what a run or a model computes on.
type Device interface {
	tensorops.Device
	// Threads is how many actions, or parts of one, it computes at a time.
	Threads() int
	// FastBF16 reports whether bfloat16 products are faster than float32's.
	FastBF16() bool
}

// OpenDevice makes the device that a configuration asks for.
func OpenDevice(cfg *config.Config) (Device, error) {
	key := "device.kernels"
	if cfg.Device.Kind == kindCUDA {
		key = "device.kind"
	}
	d, err := openDevice(deviceOptions{cfg.Device.Kind, cfg.Device.Threads, cfg.Device.Kernels})
	if err != nil {
		return nil, cfg.Errorf(key, "%w", err)
	}
	return d, nil
}

// kindCUDA is the device.kind of a GPU. Any other is the CPU: "auto" does not look for a
// GPU as long as what it computes has not been verified on one.
const kindCUDA = "cuda"

// deviceOptions say which device to make.
type deviceOptions struct {
	kind    string
	threads int    // of the CPU; 0: all cores
	kernels string // of the CPU; "": the best
}

func openDevice(o deviceOptions) (Device, error) {
	if o.kind == kindCUDA {
		d, err := cuda.New(CUDAOptions())
		if err != nil {
			return nil, err // not d: an interface around nothing would be something
		}
		return gpu{d}, nil
	}
	d, err := cpu.New(cpu.Options{Threads: o.threads, Kernels: o.kernels})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// CUDAOptions are those that a GPU is opened with. Where CUDA's libraries lie in no usual
// place, the environment names them: TROUPE_LIBCUDA and TROUPE_LIBNVRTC.
func CUDAOptions() cuda.Options {
	return cuda.Options{Driver: os.Getenv("TROUPE_LIBCUDA"), NVRTC: os.Getenv("TROUPE_LIBNVRTC")}
}

// gpu is a device whose streams share it.
type gpu struct{ *cuda.Device }

// Threads is 1: what runs beside something else takes its share of the one device.
func (gpu) Threads() int { return 1 }

// FastBF16 reports whether products of bfloat16 are faster: not those of today's kernels,
// which round to it and multiply in float32.
func (gpu) FastBF16() bool { return false }

// memoryFor is the memory that a run on a device may take; 0: not known.
func memoryFor(d Device) int64 {
	if d.Name() == kindCUDA {
		return d.Memory().Limit
	}
	return freeMemory()
}
