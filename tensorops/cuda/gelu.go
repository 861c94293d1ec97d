package cuda

import "slices"

// GELU says what computes the GELU after a product of cuBLASLt: the library, in the product's
// epilogue, or a kernel here, which reads the product again.
//
// Which one is faster depends on the GPU. It is not measured when a device is opened, although that
// would be more exact: the two have different bits. If a measurement varied from day to day, two
// runs of one config would differ, and so would two workers of one cluster. So it is a fixed rule
// for each target of the kernels. scripts/gpu-check measures both and says whether the rule is
// right for its GPU.
type GELU uint8

// The choices.
const (
	geluByRule GELU = iota
	GELUFused       // the library; the device's path shows it if the rule is different
	GELUApart       // the kernel; likewise
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
