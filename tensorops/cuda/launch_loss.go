package cuda

import "github.com/troupe-ml/troupe/tensorops"

var lossLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindCrossEntropy: crossEntropy,
}

func crossEntropy(x *exec, o *tensorops.Op) error {
	logits, targets, grad := address(o.T[2]), address(o.T[3]), address(o.T[4])
	rows, cols := o.T[2].Rows(), o.T[2].Cols()
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
		losses: losses, lse: address(o.T[1]), logits: logits, targets: targets, grad: grad, fault: x.fault,
		cols: int64(cols), scale: float32(o.F[0]), aligned: alignedRows(cols, logits, grad),
	})
	if err != nil {
		return err
	}
	return launch(x, "loss_stats", grid{threads: 256}, &struct {
		stats, losses, targets uint64
		rows                   int64
	}{address(o.T[0]), losses, targets, int64(rows)})
}
