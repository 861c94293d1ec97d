package attn

import (
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// NEON needs nothing: every arm64 processor has it.
var NEON = Kernel{Name: "neon", Gemm: &gemm.NEON, vec: &vec.NEON, max: maxNEON, exp: expNEON, scale: scaleNEON, grad: gradNEON,
	mul: mulNEON, cap: capNEON, capSlope: capSlopeNEON}
