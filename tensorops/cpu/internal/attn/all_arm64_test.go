package attn_test

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"

var all = []*attn.Kernel{&attn.NEON, &attn.Go}

// halves are the kernels that multiply bfloat16.
func halves() []*attn.Kernel { return nil }
