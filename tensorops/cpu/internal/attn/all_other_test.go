//go:build !amd64 && !arm64

package attn_test

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"

var all = []*attn.Kernel{&attn.Go}

func halves() []*attn.Kernel { return nil }
