package driver

import "fmt"

// Description is what of CUDA this machine has.
type Description struct {
	Driver  *Found // nil: none
	NVRTC   *Found // nil: none, for the reason NoNVRTC
	Devices []*Device
	Lacks   []error // why there is no driver or no device
	NoNVRTC error
}

// Found is a library that was opened.
type Found struct {
	Path         string
	Major, Minor int // CUDA's version
}

func (f Found) String() string { return fmt.Sprintf("%s (CUDA %d.%d)", f.Path, f.Major, f.Minor) }

// Describe looks for the libraries and for GPUs. It makes no context and uses no memory
// of theirs.
func Describe(l Libraries) Description {
	var is Description
	newest := nvrtcMajors[0].major
	d, err := Open(l)
	if err != nil {
		is.Lacks = append(is.Lacks, err)
	} else {
		is.Driver = &Found{Path: d.Path()}
		is.Driver.Major, is.Driver.Minor = d.Version()
		newest = is.Driver.Major
		if is.Devices, err = d.all(); err != nil {
			is.Lacks = append(is.Lacks, err)
		}
	}
	c, err := OpenCompiler(l, newest)
	if err != nil {
		is.NoNVRTC = err
		return is
	}
	is.NVRTC = &Found{Path: c.Path()}
	is.NVRTC.Major, is.NVRTC.Minor = c.Version()
	return is
}

// all looks at every GPU.
func (d *Driver) all() ([]*Device, error) {
	n, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: the driver sees no GPU", ErrUnavailable)
	}
	var all []*Device
	for i := range n {
		g, err := d.Device(i)
		if err != nil {
			return all, fmt.Errorf("device %d: %w", i, err)
		}
		all = append(all, g)
	}
	return all, nil
}
