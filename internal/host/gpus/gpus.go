// Package gpus knows what GPUs' data sheets say of them, for estimates.
//
// It must not import anything of Troupe.
package gpus

import (
	"slices"
	"strings"
)

// GPU is what a data sheet says of one.
type GPU struct {
	Name string // that --device takes
	// FLOPs are those of matrix products a second: dense, without sparsity, of bfloat16 with sums in float32
	// on the tensor cores, and of float32 outside of them.
	BF16FLOPs, FP32FLOPs float64
	BytesPerS            float64 // of its memory
	MemoryBytes          int64
	// LinkBytesPerS is what it sends to the other GPUs of its host in a second, by NVLink or PCI Express: half of what
	// the data sheet says of both ways together.
	LinkBytesPerS float64
}

// FLOPs are those of products of a type, "float32" or "bfloat16".
func (g GPU) FLOPs(dtype string) float64 {
	if dtype == "bfloat16" {
		return g.BF16FLOPs
	}
	return g.FP32FLOPs
}

const (
	tera = 1e12
	gib  = 1 << 30
)

// All are those that are known.
var All = []GPU{
	{"h100", 989 * tera, 67 * tera, 3.35 * tera, 80 * gib, 450e9}, // SXM
	{"h100-pcie", 756 * tera, 51 * tera, 2.0 * tera, 80 * gib, 64e9},
	{"h100-nvl", 835 * tera, 60 * tera, 3.9 * tera, 94 * gib, 300e9},
	{"h200", 989 * tera, 67 * tera, 4.8 * tera, 141e9, 450e9}, // SXM
	{"h200-nvl", 835 * tera, 60 * tera, 4.8 * tera, 141e9, 450e9},
	{"a100", 312 * tera, 19.5 * tera, 2.04 * tera, 80 * gib, 300e9},
	{"b200", 2250 * tera, 75 * tera, 8.0 * tera, 180e9, 900e9},
	{"l40s", 362 * tera, 91.6 * tera, 0.864 * tera, 48 * gib, 32e9},
	{"rtx-4090", 165 * tera, 82.6 * tera, 1.008 * tera, 24 * gib, 32e9},
}

// Named is the GPU of a name, in any case, with "-" or " " between its words.
func Named(name string) (GPU, bool) {
	name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "-")
	i := slices.IndexFunc(All, func(g GPU) bool { return g.Name == name })
	if i < 0 {
		return GPU{}, false
	}
	return All[i], true
}

// Names are those that Named knows.
func Names() []string {
	names := make([]string, len(All))
	for i, g := range All {
		names[i] = g.Name
	}
	return names
}
