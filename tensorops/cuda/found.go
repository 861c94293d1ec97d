package cuda

import (
	"errors"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// Found is a GPU of this machine.
type Found struct {
	Ordinal     int      // by which it is asked for, in Options
	ID          [16]byte // its own, whoever looks at it
	Name        string
	MemoryBytes int64
	Path        string // as Device.Path: of a library that does not begin on it, New knows better
}

// Find lists the GPUs that New can open with these options, of which Device counts for
// nothing. It compiles nothing, and uses no memory of theirs. Where there is none, it fails
// with ErrUnavailable.
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
