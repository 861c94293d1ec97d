package gemm_test

import (
	"syscall"
	"testing"
	"unsafe"
)

// guarded hands out pieces of memory that end right before a page that cannot be
// read or written.
type guarded struct {
	t     *testing.T
	areas [][]byte // without the page behind them
	used  int
}

const guardPage = 4096

func newGuarded(t *testing.T) *guarded {
	g := &guarded{t: t}
	t.Cleanup(func() {
		for _, a := range g.areas {
			_ = syscall.Munmap(a[:cap(a)])
		}
	})
	return g
}

// reset takes all pieces back.
func (g *guarded) reset() { g.used = 0 }

func (g *guarded) piece(size int) unsafe.Pointer {
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

func (g *guarded) floats(n int) []float32 { return unsafe.Slice((*float32)(g.piece(4*n)), n) }
func (g *guarded) halves(n int) []uint16  { return unsafe.Slice((*uint16)(g.piece(2*n)), n) }
