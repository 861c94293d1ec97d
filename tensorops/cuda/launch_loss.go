package cuda

import "github.com/troupe-ml/troupe/tensorops"

var lossLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindCrossEntropy:     crossEntropy,
	tensorops.KindCrossEntropyPart: crossEntropyPart,
	tensorops.KindCrossEntropyJoin: crossEntropyJoin,
}

func crossEntropy(x *exec, o *tensorops.Op) error {
	a := o.CrossEntropy()
	rows, cols, half, targets := a.Logits.Rows(), a.Logits.Cols(), halves(a.Logits, a.Grad), address(a.Targets)
	losses, err := x.scratch(8 * max(rows, 1))
	if err != nil {
		return err
	}
	err = onRows(x, mixed("cross_entropy", half), rows, cols, &struct {
		losses, lse, logits, targets, grad, fault uint64
		cols                                      int64
		scale                                     float32
		aligned, halves, pad                      uint32
	}{
		losses: losses, lse: address(a.LSE), logits: address(a.Logits), targets: targets, grad: address(a.Grad), fault: x.fault,
		cols: int64(cols), scale: float32(a.Scale), aligned: alignedRows(cols, a.Logits, a.Grad), halves: half,
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
	cols, half := a.Logits.Cols(), halves(a.Logits)
	return onRows(x, mixed("cross_entropy_part", half), a.Logits.Rows(), cols, &struct {
		parts, logits, targets, fault uint64
		cols, first, vocab            int64
		aligned, halves               uint32
	}{
		parts: address(a.Parts), logits: address(a.Logits), targets: address(a.Targets), fault: x.fault,
		cols: int64(cols), first: int64(a.First), vocab: int64(a.Vocab), aligned: alignedRows(cols, a.Logits), halves: half,
	})
}

func crossEntropyJoin(x *exec, o *tensorops.Op) error {
	a := o.CrossEntropyJoin()
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
	cols, half := a.Logits.Cols(), halves(a.Logits, a.Grad)
	return onRows(x, mixed("cross_entropy_join", half), rows, cols, &struct {
		lse, logits, targets, grad uint64
		cols, first                int64
		scale                      float32
		aligned, halves, pad       uint32
	}{
		lse: address(a.LSE), logits: address(a.Logits), targets: address(a.Targets), grad: address(a.Grad),
		cols: int64(cols), first: int64(a.First), scale: float32(a.Scale), aligned: alignedRows(cols, a.Logits, a.Grad), halves: half,
	})
}
