// Package kernels holds the CUDA C source of the kernels.
package kernels

import "embed"

// Files are the kernels, *.cu, and what they include, *.cuh.
//
//go:embed *.cu *.cuh
var Files embed.FS
