package cuda

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// kernels makes the modules for a device, and says what they were compiled for: by NVRTC,
// or ahead where there is none.
func (o Options) kernels(d *driver.Driver, gpu *driver.Device) (target string, m *modules, err error) {
	compiler, without, err := o.compiler(d)
	if err != nil {
		return "", nil, err
	}
	if compiler == nil {
		return precompiled(d, gpu, without)
	}
	if target, err = compiler.Target(gpu); err != nil {
		return "", nil, err
	}
	kept := cache{o.Cache}
	if o.Cache == "" {
		kept = userCache()
	}
	m, err = newModules(d, compiler, target, kept)
	return target, m, err
}

// compiler opens NVRTC. Where the kernels are to be those that come with the build it is nil,
// and without says why it is not there, if it was looked for.
func (o Options) compiler(d *driver.Driver) (c *driver.Compiler, without, err error) {
	if o.NVRTC == NoNVRTC {
		return nil, nil, nil
	}
	major, _ := d.Version()
	c, err = driver.OpenCompiler(o.libraries(), major)
	if o.NVRTC == "" && errors.Is(err, ErrUnavailable) {
		return nil, err, nil
	}
	return c, nil, err
}

// precompiled are the kernels as they come with the build, in PTX that the driver
// translates for its GPU when one is first asked for. without is why there is no NVRTC.
func precompiled(d *driver.Driver, gpu *driver.Device, without error) (target string, m *modules, err error) {
	major, minor := d.Version()
	if err := takesPTX(gpu, major, minor); err != nil {
		if without != nil {
			err = fmt.Errorf("%w: %w", err, without)
		}
		return "", nil, err
	}
	files, err := sources("*.cu")
	if err != nil {
		return "", nil, err
	}
	m = &modules{driver: d, functions: make(map[string]driver.Function)}
	for _, source := range files {
		image, err := kernels.PTX(source.Name)
		if err != nil {
			return "", nil, err
		}
		m.files = append(m.files, &kernelFile{Source: source, image: image})
	}
	return kernels.PTXTarget, m, nil
}

// takesPTX refuses a device, or a version of CUDA that its driver is of, that is older than
// the PTX.
func takesPTX(gpu *driver.Device, major, minor int) error {
	const without = "but the kernels in this build need %d.%d or later: install NVRTC"
	switch {
	case 10*gpu.Major+gpu.Minor < 10*kernels.PTXMajor+kernels.PTXMinor:
		return fmt.Errorf("%w: the device %s has compute capability %d.%d, "+without, ErrUnavailable, gpu.Name, gpu.Major, gpu.Minor,
			kernels.PTXMajor, kernels.PTXMinor)
	case major < kernels.PTXDriver:
		return fmt.Errorf("%w: the driver supports CUDA %d.%d, "+without, ErrUnavailable, major, minor, kernels.PTXDriver, 0)
	}
	return nil
}

// Description is what of CUDA this machine has.
type Description struct {
	driver.Description
	PTX bool // the kernels are those that come with the build: there is no NVRTC
}

// Describe looks for the libraries and for GPUs, with the options' paths. It uses no
// memory of theirs.
func Describe(o Options) Description {
	is := Description{Description: driver.Describe(o.libraries())}
	if is.NoNVRTC == nil {
		return is
	}
	if o.NVRTC != "" && o.NVRTC != NoNVRTC {
		is.Lacks = append(is.Lacks, is.NoNVRTC)
		return is
	}
	for _, gpu := range is.Devices {
		if err := takesPTX(gpu, is.Driver.Major, is.Driver.Minor); err != nil {
			is.Lacks = append(is.Lacks, err)
		} else {
			is.PTX = true
		}
	}
	return is
}
