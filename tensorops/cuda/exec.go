package cuda

import (
	"fmt"
	"unsafe"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// exec carries out operations on one stream, from the owner's thread.
type exec struct {
	processors  int  // streaming multiprocessors of the device
	tensorCores bool // that multiply bfloat16
	// fault is the address of an int64 of the stream's. A kernel that meets a bad token id
	// stores 1<<32 | its row there.
	fault uint64
	// badRoute is the address of one for places, experts and offsets that cannot be: see checkedroutes.go.
	badRoute uint64

	driver    *driver.Driver
	modules   *modules
	stream    driver.Stream
	temporary *tensorops.Pool     // of scratch memory
	taken     []*tensorops.Buffer // by the operation under way
	described driver.Launch
	wide      tensorops.Op // the operation under way with float32 for bfloat16: see bfloat16.go

	graphs    graphs
	variables variables
	staging   *staging // of the batch under way

	work      *work
	blas      *blas
	fuseGELU  bool           // into products of blas
	workspace driver.Address // workspaceBytes for blas
}

// do starts the kernels of the first operation, or of the first few where they are carried
// out as one, and returns how many those are.
func (x *exec) do(ops []tensorops.Op) (done int, err error) {
	defer func() {
		x.putBack()
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	kind := ops[0].Kind
	wide, err := inFloat32(&ops[0])
	if err != nil {
		return 0, err
	}
	if j, ok := joiners[kind]; ok {
		return j(x, ops)
	}
	l, ok := launchers[kind]
	if !ok {
		return 0, tensorops.ErrUnsupported
	}
	if wide && !onTensorCores(x, &ops[0]) {
		return 1, x.launchInFloat32(&ops[0], l)
	}
	return 1, l(x, &ops[0])
}

// start puts a kernel's launch into the stream. It copies the argument.
func (x *exec) start(kernel string, g grid, args unsafe.Pointer, bytes int) error {
	if bytes > driver.LimitArgument {
		return fmt.Errorf("%s: the argument has %d bytes; the limit is %d", kernel, bytes, driver.LimitArgument)
	}
	f, err := x.modules.function(kernel)
	if err != nil {
		return err
	}
	if err := x.modules.allow(kernel, f, g.shared); err != nil {
		return fmt.Errorf("kernel %s with %d bytes of shared memory a block: %w", kernel, g.shared, err)
	}
	copy(x.described.Argument(bytes), unsafe.Slice((*byte)(args), bytes))
	if err := x.driver.Launch(f, [3]int{g.x, g.y, g.z}, [3]int{g.threads, 1, 1}, g.shared, x.stream, &x.described); err != nil {
		return fmt.Errorf("kernel %s, %d×%d×%d blocks of %d threads: %w", kernel, g.x, g.y, g.z, g.threads, err)
	}
	return nil
}

// scratch is device memory of n bytes until the end of the operation. It comes
// from an arena that only operations take from, at the time of their launch: what lists
// free is free in the order of recording, which may be ahead of the launches.
func (x *exec) scratch(bytes int) (addr uint64, err error) {
	b, err := x.temporary.Take(bytes)
	if err != nil {
		return 0, err
	}
	x.taken = append(x.taken, b)
	return b.Addr, nil
}

// putBack makes an operation's scratch memory that of the next: it runs later.
func (x *exec) putBack() {
	for i, b := range x.taken {
		x.temporary.Put(b)
		x.taken[i] = nil
	}
	x.taken = x.taken[:0]
}

// address is where a tensor's first element lies; 0 for "none".
func address(t tensorops.Tensor) uint64 {
	if !t.Valid() {
		return 0
	}
	return t.Buffer().Addr + uint64(t.Offset()*t.DType().Size())
}

// joiners carry out operations that may be one with those that follow.
var joiners = map[tensorops.Kind]joiner{
	tensorops.KindMatMul:      matMuls,
	tensorops.KindSquaredNorm: squaredNorms,
	tensorops.KindAdamW:       adamWs,
	tensorops.KindDropout:     residuals,
	tensorops.KindGELUGrad:    geluGrads,
	tensorops.KindSwiGLUGrad:  swiGLUGrads,

	tensorops.KindLayerNormWeightGrad: normWeightGrads,
	tensorops.KindRMSNormWeightGrad:   normWeightGrads,
}

// launchers carry out the others, by kind.
var launchers = merge(actLaunchers, normLaunchers, embedLaunchers, lossLaunchers, optimLaunchers, moveLaunchers, linearLaunchers,
	attentionLaunchers, deltaLaunchers, sinkLaunchers, routeLaunchers, expertLaunchers, groupedLaunchers, exchangeLaunchers)

func merge(families ...map[tensorops.Kind]launcher) map[tensorops.Kind]launcher {
	all := make(map[tensorops.Kind]launcher)
	for _, f := range families {
		for kind, l := range f {
			all[kind] = l
		}
	}
	return all
}
