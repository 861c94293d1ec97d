//go:build !linux

package data

import "math"

// memoryBytes returns the largest number: here the machine's memory is unknown.
func memoryBytes() int64 { return math.MaxInt }
