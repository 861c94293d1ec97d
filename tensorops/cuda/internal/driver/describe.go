package driver

import "fmt"

// Description is what of CUDA this machine has.
type Description struct {
	Driver  *Found // nil: none
	NVRTC   *Found // nil: none, for the reason NoNVRTC
	BLAS    *Found // nil: products are computed without it, for the reason NoBLAS
	Devices []*Device
	Lacks   []error // why there is no driver or no device
	NoNVRTC error
	NoBLAS  error
}

// Found is a library that was opened.
type Found struct {
	Path         string
	Product      string // whose version it is
	Major, Minor int
}

func (f Found) String() string {
	return fmt.Sprintf("%s (%s %d.%d)", f.Path, f.Product, f.Major, f.Minor)
}

// Describe looks for the libraries and for GPUs. It makes no context and uses no memory
// of theirs.
func Describe(l Libraries) Description {
	var is Description
	newest := nvrtcMajors[0].major
	d, err := Open(l)
	if err != nil {
		is.Lacks = append(is.Lacks, err)
	} else {
		is.Driver = &Found{Path: d.Path(), Product: "CUDA"}
		is.Driver.Major, is.Driver.Minor = d.Version()
		newest = is.Driver.Major
		if is.Devices, err = d.All(); err != nil {
			is.Lacks = append(is.Lacks, err)
		}
		d.findPeers(is.Devices)
	}
	is.findBLAS(l, newest)
	c, err := OpenCompiler(l, newest)
	if err != nil {
		is.NoNVRTC = err
		return is
	}
	is.NVRTC = &Found{Path: c.Path(), Product: "CUDA"}
	is.NVRTC.Major, is.NVRTC.Minor = c.Version()
	return is
}

// findBLAS looks for cuBLASLt. A device can do without, unless it is asked for by its path.
func (is *Description) findBLAS(l Libraries, driverMajor int) {
	b, err := OpenBLAS(l, driverMajor)
	switch {
	case err == nil:
		is.BLAS = &Found{Path: b.Path(), Product: "cuBLASLt"}
		is.BLAS.Major, is.BLAS.Minor = b.Version()
	case l.NeedsBLAS():
		is.Lacks = append(is.Lacks, err)
	default:
		is.NoBLAS = err
	}
}

// All looks at every GPU.
func (d *Driver) All() ([]*Device, error) {
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
