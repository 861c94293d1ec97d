package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// errRowScale: the kernels know one factor of a gradient.
var errRowScale = fmt.Errorf("%w: a cross-entropy whose rows have factors of their own", tensorops.ErrUnsupported)

var lossLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindCrossEntropy:     crossEntropy,
	tensorops.KindCrossEntropyPart: crossEntropyPart,
	tensorops.KindCrossEntropyJoin: crossEntropyJoin,
}

// lossThreads is LOSS_THREADS of loss.cu.
const lossThreads = 448

// onLogits starts a kernel in which each block has a row of logits. How many threads it has, and with
// that the order of its sums, is a matter of the row's width and type.
func onLogits[A any](x *exec, kernel string, logits tensorops.Tensor, args *A) error {
	const pieces, warp = 4, 32 // a thread's share, of 16 bytes each
	rows, cols := logits.Rows(), logits.Cols()
	if rows == 0 || cols == 0 {
		return nil
	}
	if isBFloat16(logits) {
		kernel += "_bf16"
	}
	threads := ceil(ceil(cols*logits.DType().Size(), 16*pieces), warp) * warp
	return launch(x, kernel, grid{x: rows, threads: min(threads, lossThreads)}, args)
}

// wholeRows reports to a kernel, as 0 or 1, whether it may take rows of logits by pieces of 16 bytes, and
// those of their gradient, which may be none.
func wholeRows(logits, grad tensorops.Tensor) uint32 {
	for _, t := range []tensorops.Tensor{logits, grad} {
		if !t.Valid() {
			continue
		}
		bytes := t.DType().Size()
		if t.DType() != logits.DType() || address(t)%mostAlignment != 0 || t.Rows() > 1 && t.Stride()*bytes%mostAlignment != 0 {
			return 0
		}
	}
	return 1
}

func crossEntropy(x *exec, o *tensorops.Op) error {
	a := o.CrossEntropy()
	if a.RowScale.Valid() {
		return errRowScale
	}
	losses, err := x.scratch(8 * max(a.Logits.Rows(), 1))
	if err != nil {
		return err
	}
	err = onLogits(x, "cross_entropy", a.Logits, &struct {
		losses, lse, logits, targets, grad, fault uint64
		cols, stride, gradStride                  int64
		scale                                     float32
		whole, gradHalf, pad                      uint32
	}{
		losses: losses, lse: address(a.LSE), logits: address(a.Logits), targets: address(a.Targets), grad: address(a.Grad), fault: x.fault,
		cols: int64(a.Logits.Cols()), stride: int64(a.Logits.Stride()), gradStride: int64(a.Grad.Stride()),
		scale: float32(a.Scale), whole: wholeRows(a.Logits, a.Grad), gradHalf: halves(a.Grad),
	})
	if err != nil {
		return err
	}
	return x.lossStats(a.Stats, losses, a.Targets)
}

// lossStats adds up the losses of rows.
func (x *exec) lossStats(stats tensorops.Tensor, losses uint64, targets tensorops.Tensor) error {
	return launch(x, "loss_stats", grid{threads: 256}, &struct {
		stats, losses, targets uint64
		rows                   int64
	}{address(stats), losses, address(targets), int64(targets.Len())})
}

func crossEntropyPart(x *exec, o *tensorops.Op) error {
	a := o.CrossEntropyPart()
	return onLogits(x, "cross_entropy_part", a.Logits, &struct {
		parts, logits, targets, fault uint64
		cols, stride, first, vocab    int64
		whole, pad                    uint32
	}{
		parts: address(a.Parts), logits: address(a.Logits), targets: address(a.Targets), fault: x.fault,
		cols: int64(a.Logits.Cols()), stride: int64(a.Logits.Stride()), first: int64(a.First), vocab: int64(a.Vocab),
		whole: wholeRows(a.Logits, tensorops.Tensor{}),
	})
}

func crossEntropyJoin(x *exec, o *tensorops.Op) error {
	a := o.CrossEntropyJoin()
	if a.RowScale.Valid() {
		return errRowScale
	}
	rows := a.Targets.Len()
	losses, err := x.scratch(8 * max(rows, 1))
	if err != nil {
		return err
	}
	if rows > 0 {
		err = launch(x, "loss_join", x.over(rows), &struct {
			losses, lse, parts uint64
			rows, slices       int64
		}{losses, address(a.LSE), address(a.Parts), int64(rows), int64(a.Parts.Len() / (tensorops.LossParts * rows))})
	}
	if err != nil {
		return err
	}
	if err := x.lossStats(a.Stats, losses, a.Targets); err != nil || !a.Grad.Valid() {
		return err
	}
	return onLogits(x, "cross_entropy_join", a.Logits, &struct {
		lse, logits, targets, grad      uint64
		cols, stride, gradStride, first int64
		scale                           float32
		whole, gradHalf, pad            uint32
	}{
		lse: address(a.LSE), logits: address(a.Logits), targets: address(a.Targets), grad: address(a.Grad),
		cols: int64(a.Logits.Cols()), stride: int64(a.Logits.Stride()), gradStride: int64(a.Grad.Stride()), first: int64(a.First),
		scale: float32(a.Scale), whole: wholeRows(a.Logits, a.Grad), gradHalf: halves(a.Grad),
	})
}
