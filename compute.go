package troupe

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
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
	d, err := openDevice(deviceOptions{cfg.Device.Kind, cfg.Device.Threads, cfg.Device.Kernels})
	if err != nil {
		return nil, cfg.Errorf("device.kernels", "%w", err)
	}
	return d, nil
}

// deviceOptions say which device to make.
type deviceOptions struct {
	kind    string // "", "auto" or "cpu"
	threads int    // 0: all cores
	kernels string // "": the best
}

func openDevice(o deviceOptions) (Device, error) {
	d, err := cpu.New(cpu.Options{Threads: o.threads, Kernels: o.kernels})
	if err != nil {
		return nil, err // not d: an interface around nothing would be something
	}
	return d, nil
}
