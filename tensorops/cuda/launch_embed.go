package cuda

import "github.com/troupe-ml/troupe/tensorops"

var embedLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindEmbed:         embed,
	tensorops.KindEmbedGrad:     embedGrad,
	tensorops.KindAddPositions:  addPositions,
	tensorops.KindPositionsGrad: positionsGrad,
}

func embed(x *exec, o *tensorops.Op) error {
	a := o.Embed()
	rows, cols, half := a.Out.Rows(), a.Out.Cols(), halves(a.Out, a.Weight)
	return onRows(x, mixed("embed", half), rows, cols, &struct {
		out, weight, ids, fault uint64
		cols, vocabulary        int64
		aligned, halves         uint32
	}{
		out: address(a.Out), weight: address(a.Weight), ids: address(a.IDs), fault: x.fault,
		cols: int64(cols), vocabulary: int64(a.Weight.Rows()), aligned: alignedRowsOf(cols, a.Out, a.Weight), halves: half,
	})
}

func embedGrad(x *exec, o *tensorops.Op) error {
	a := o.EmbedGrad()
	rows, cols := a.DY.Rows(), a.DY.Cols()
	if rows == 0 {
		return nil
	}
	tables, err := x.scratch(2 * 4 * rows)
	if err != nil {
		return err
	}
	order, count, ids := tables, tables+uint64(4*rows), address(a.IDs)
	const few = 128 // rows to a block: a few thousand reach many multiprocessors
	err = launch(x, "embed_order", grid{x: ceil(rows, few), threads: few}, &struct {
		order, count, ids, fault uint64
		vocabulary, rows         int64
	}{order, count, ids, x.fault, int64(a.Grad.Rows()), int64(rows)})
	if err != nil || cols == 0 {
		return err
	}
	const threads = 64
	grad, dy := address(a.Grad), address(a.DY)
	return launch(x, "embed_grad", grid{x: rows, y: ceil(cols, 4*threads), threads: threads}, &struct {
		grad, dy, ids, order, count uint64
		cols                        int64
		aligned, pad                uint32
	}{grad: grad, dy: dy, ids: ids, order: order, count: count, cols: int64(cols), aligned: alignedRows(cols, grad, dy)})
}

func addPositions(x *exec, o *tensorops.Op) error {
	a := o.AddPositions()
	cols := a.Weight.Cols()
	out, in, weight := address(a.Out), address(a.X), address(a.Weight)+uint64(4*a.First*cols)
	return onRows(x, "add_positions", a.X.Rows(), cols, &struct {
		out, x, weight uint64
		period, cols   int64
		aligned, pad   uint32
	}{out: out, x: in, weight: weight, period: int64(a.Period), cols: int64(cols), aligned: alignedRows(cols, out, in, weight)})
}

func positionsGrad(x *exec, o *tensorops.Op) error {
	a := o.PositionsGrad()
	rows, cols := a.DY.Rows(), a.DY.Cols()
	if rows == 0 {
		return nil
	}
	grad, dy := address(a.Grad)+uint64(4*a.First*cols), address(a.DY)
	return onRows(x, "positions_grad", a.Period, cols, &struct {
		grad, dy           uint64
		period, cols, rows int64
		aligned, pad       uint32
	}{grad: grad, dy: dy, period: int64(a.Period), cols: int64(cols), rows: int64(rows), aligned: alignedRows(cols, grad, dy)})
}
