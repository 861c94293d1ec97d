package cuda

import (
	"errors"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// Found is a GPU of this machine.
type Found struct {
	Ordinal     int      // its number in Options
	ID          [16]byte // its unique id
	Name        string
	MemoryBytes int64
	Path        string // like Device.Path, before knowing whether the library works on it
}

// Find returns the GPUs that New can open with these options, ignoring Options.Device. It compiles
// nothing, and uses no GPU memory. Without a GPU it returns ErrUnavailable.
func Find(o Options) ([]Found, error) {
	drv, err := driver.Open(o.libraries())
	if err != nil {
		return nil, err
	}
	b, err := openBLAS(o, drv)
	if err != nil {
		return nil, err
	}
	gpus, err := drv.All()
	var all []Found
	for _, g := range gpus {
		target, why := o.target(drv, g)
		if why != nil {
			err = errors.Join(err, why)
			continue
		}
		all = append(all, Found{g.Ordinal, g.UUID, g.Name, g.Bytes, pathOf(target, &b)})
	}
	if len(all) > 0 {
		err = nil // of others
	}
	return all, err
}

// target is what the kernels for a GPU are compiled for.
func (o Options) target(d *driver.Driver, gpu *driver.Device) (string, error) {
	c, without, err := o.compiler(d)
	if err != nil {
		return "", err
	}
	if c != nil {
		return c.Target(gpu)
	}
	target, _, err := precompiled(d, gpu, without)
	return target, err
}
