package cuda

import "github.com/troupe-ml/troupe/tensorops"

var embedLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindEmbed:         embed,
	tensorops.KindEmbedGrad:     embedGrad,
	tensorops.KindAddPositions:  addPositions,
	tensorops.KindPositionsGrad: positionsGrad,
}

func embed(x *exec, o *tensorops.Op) error {
	out, weight := address(o.T[0]), address(o.T[1])
	rows, cols := o.T[0].Rows(), o.T[0].Cols()
	return onRows(x, "embed", rows, cols, &struct {
		out, weight, ids, fault uint64
		cols, vocabulary        int64
		aligned, pad            uint32
	}{
		out: out, weight: weight, ids: address(o.T[2]), fault: x.fault,
		cols: int64(cols), vocabulary: int64(o.T[1].Rows()), aligned: alignedRows(cols, out, weight),
	})
}

func embedGrad(x *exec, o *tensorops.Op) error {
	rows, cols := o.T[1].Rows(), o.T[1].Cols()
	if rows == 0 {
		return nil
	}
	tables, err := x.scratch(2 * 4 * rows)
	if err != nil {
		return err
	}
	order, count, ids := tables, tables+uint64(4*rows), address(o.T[2])
	const few = 128 // rows to a block: a few thousand reach many multiprocessors
	err = launch(x, "embed_order", grid{x: ceil(rows, few), threads: few}, &struct {
		order, count, ids, fault uint64
		vocabulary, rows         int64
	}{order, count, ids, x.fault, int64(o.T[0].Rows()), int64(rows)})
	if err != nil || cols == 0 {
		return err
	}
	const threads = 64
	grad, dy := address(o.T[0]), address(o.T[1])
	return launch(x, "embed_grad", grid{x: rows, y: ceil(cols, 4*threads), threads: threads}, &struct {
		grad, dy, ids, order, count uint64
		cols                        int64
		aligned, pad                uint32
	}{grad: grad, dy: dy, ids: ids, order: order, count: count, cols: int64(cols), aligned: alignedRows(cols, grad, dy)})
}

func addPositions(x *exec, o *tensorops.Op) error {
	cols, period, first := o.T[2].Cols(), o.I[0], o.I[1]
	out, in, weight := address(o.T[0]), address(o.T[1]), address(o.T[2])+uint64(4*first*cols)
	return onRows(x, "add_positions", o.T[1].Rows(), cols, &struct {
		out, x, weight uint64
		period, cols   int64
		aligned, pad   uint32
	}{out: out, x: in, weight: weight, period: int64(period), cols: int64(cols), aligned: alignedRows(cols, out, in, weight)})
}

func positionsGrad(x *exec, o *tensorops.Op) error {
	rows, cols, period, first := o.T[1].Rows(), o.T[1].Cols(), o.I[0], o.I[1]
	if rows == 0 {
		return nil
	}
	grad, dy := address(o.T[0])+uint64(4*first*cols), address(o.T[1])
	return onRows(x, "positions_grad", period, cols, &struct {
		grad, dy           uint64
		period, cols, rows int64
		aligned, pad       uint32
	}{grad: grad, dy: dy, period: int64(period), cols: int64(cols), rows: int64(rows), aligned: alignedRows(cols, grad, dy)})
}
