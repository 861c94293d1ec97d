package cuda

import (
	"fmt"
	"unsafe"

	"github.com/troupe-ml/troupe/tensorops"
)

// launcher carries out an operation: it starts one kernel or several.
type launcher func(x *exec, o *tensorops.Op) error

// joiner carries out the first of some operations, with as many of those behind it as go
// with it, and returns how many.
type joiner func(x *exec, ops []tensorops.Op) (int, error)

// grid is how many blocks a kernel has, of how many threads each.
type grid struct {
	x, y, z int // blocks; 0 counts as 1
	threads int // in a block, along x
	shared  int // bytes of dynamic shared memory of a block
}

// launch starts a kernel on the stream. args points to a struct with the layout of the
// kernel's argument in C: addresses are uint64, numbers int32, int64, float32 and
// float64, the larger ones first so that nothing needs filling.
func launch[A any](x *exec, kernel string, g grid, args *A) error {
	if g.threads < 1 || g.threads > maxThreads {
		return fmt.Errorf("%s: %d threads in a block, want 1 to %d", kernel, g.threads, maxThreads)
	}
	g.x, g.y, g.z = max(g.x, 1), max(g.y, 1), max(g.z, 1)
	return x.start(kernel, g, unsafe.Pointer(args), int(unsafe.Sizeof(*args)))
}

const (
	maxThreads = 1024 // the most threads that a block has
	warp       = 32   // threads
)

// over is a grid for n elements, of which each thread takes those whole grids apart: a
// kernel loops from its index in steps of the grid's size.
func (x *exec) over(n int) grid {
	const threads = 256
	blocks := (n + threads - 1) / threads
	return grid{x: min(max(blocks, 1), 8*x.processors), threads: threads}
}
