package cuda

import "github.com/troupe-ml/troupe/tensorops"

var lossLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindCrossEntropy: crossEntropy,
}

func crossEntropy(x *exec, o *tensorops.Op) error {
	a := o.CrossEntropy()
	logits, targets, grad := address(a.Logits), address(a.Targets), address(a.Grad)
	rows, cols := a.Logits.Rows(), a.Logits.Cols()
	losses, err := x.scratch(8 * max(rows, 1))
	if err != nil {
		return err
	}
	err = onRows(x, "cross_entropy", rows, cols, &struct {
		losses, lse, logits, targets, grad, fault uint64
		cols                                      int64
		scale                                     float32
		aligned                                   uint32
	}{
		losses: losses, lse: address(a.LSE), logits: logits, targets: targets, grad: grad, fault: x.fault,
		cols: int64(cols), scale: float32(a.Scale), aligned: alignedRows(cols, logits, grad),
	})
	if err != nil {
		return err
	}
	return launch(x, "loss_stats", grid{threads: 256}, &struct {
		stats, losses, targets uint64
		rows                   int64
	}{address(a.Stats), losses, targets, int64(rows)})
}
