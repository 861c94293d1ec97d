package cuda

import "github.com/troupe-ml/troupe/tensorops"

var lossLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindCrossEntropy: crossEntropy,
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
	return launch(x, "loss_stats", grid{threads: 256}, &struct {
		stats, losses, targets uint64
		rows                   int64
	}{address(a.Stats), losses, targets, int64(rows)})
}
