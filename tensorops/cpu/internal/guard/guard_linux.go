package guard

import (
	"syscall"
	"testing"
	"unsafe"
)

// Memory hands out pieces of memory that end right before a page that cannot be
// read or written.
type Memory struct {
	t     *testing.T
	areas [][]byte // without the page behind them
	used  int
}

const guardPage = 4096

// New is the memory of a test.
func New(t *testing.T) *Memory {
	g := &Memory{t: t}
	t.Cleanup(func() {
		for _, a := range g.areas {
			_ = syscall.Munmap(a[:cap(a)])
		}
	})
	return g
}

// Reset takes all pieces back.
func (g *Memory) Reset() { g.used = 0 }

func (g *Memory) piece(size int) unsafe.Pointer {
	g.t.Helper()
	const most = 4 << 20
	if size > most {
		g.t.Fatalf("%d bytes: no more than %d", size, most)
	}
	if g.used == len(g.areas) {
		all, err := syscall.Mmap(-1, 0, most+guardPage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			g.t.Fatal(err)
		}
		if err := syscall.Mprotect(all[most:], syscall.PROT_NONE); err != nil {
			g.t.Fatal(err)
		}
		g.areas = append(g.areas, all[:most])
	}
	a := g.areas[g.used]
	g.used++
	return unsafe.Pointer(&a[len(a)-max(size, 1)])
}

// Floats are n numbers in a piece of their own.
func (g *Memory) Floats(n int) []float32 { return unsafe.Slice((*float32)(g.piece(4*n)), n) }

// Halves are n halves of numbers in a piece of their own.
func (g *Memory) Halves(n int) []uint16 { return unsafe.Slice((*uint16)(g.piece(2*n)), n) }

// Bytes are n bytes in a piece of their own.
func (g *Memory) Bytes(n int) []byte { return unsafe.Slice((*byte)(g.piece(n)), n) }
