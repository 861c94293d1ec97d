//go:build !linux

package guard

import "testing"

// Memory hands out pieces of memory. On this system no unreadable memory
// follows them.
type Memory struct{}

// New is the memory of a test.
func New(*testing.T) *Memory { return &Memory{} }

// Reset takes all pieces back.
func (g *Memory) Reset() {}

// Floats are n numbers.
func (g *Memory) Floats(n int) []float32 { return make([]float32, n) }

// Halves are n halves of numbers.
func (g *Memory) Halves(n int) []uint16 { return make([]uint16, n) }

// Bytes are n bytes.
func (g *Memory) Bytes(n int) []byte { return make([]byte, n) }
