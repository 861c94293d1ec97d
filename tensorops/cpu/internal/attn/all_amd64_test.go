package attn_test

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"

var all = []*attn.Kernel{&attn.AVX512, &attn.AVX2, &attn.Go}
