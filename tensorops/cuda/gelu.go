package cuda

import "slices"

// GELU says what computes the GELU behind a product that is cuBLASLt's: the library, in the
// product's epilogue, or a kernel here, which reads the product again.
//
// Which of them is faster depends on the GPU. It is not measured when a device is opened,
// though that would be more exact: the two give other bits, a measurement that comes out one
// way today and the other tomorrow would make two runs of one configuration differ, and so
// would two workers of one cluster. So it is a rule of what the kernels are compiled for, the
// same wherever and whenever that is, and scripts/gpu-check measures both and says whether the
// rule is right for its GPU.
type GELU uint8

// The ways.
const (
	geluByRule GELU = iota
	GELUFused       // by the library; the device's path says so where the rule is another
	GELUApart       // by the kernel; likewise
)

// gelusApart are the targets on which the rule is the kernel. On Hopper the epilogue, whose exponentials hold up
// the tensor cores, is reported to cost more than it saves. That is about float32: products that write bfloat16
// do not take it, and by scripts/gpu-check an H200 has the same speed either way.
var gelusApart = []string{"sm_90"}

// fuses reports whether GELUs go into products, for a target.
func (g GELU) fuses(target string) bool {
	switch g {
	case GELUFused:
		return true
	case GELUApart:
		return false
	default:
		return !slices.Contains(gelusApart, target)
	}
}

// suffix is its part of a device's path: none where it is the rule, whose bits the target
// tells.
func (g GELU) suffix(target string) string {
	switch fused := g.fuses(target); {
	case fused == geluByRule.fuses(target):
		return ""
	case fused:
		return "-gelu-fused"
	default:
		return "-gelu-apart"
	}
}
