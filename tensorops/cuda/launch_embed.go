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
		cols: int64(cols), vocabulary: int64(a.Weight.Rows()), aligned: alignedRows(cols, a.Out, a.Weight), halves: half,
	})
}

func embedGrad(x *exec, o *tensorops.Op) error {
	a := o.EmbedGrad()
	return addRows(x, a.Grad, a.DY, address(a.IDs))
}

// addRows adds the rows of dy to those of grad that ids name.
func addRows(x *exec, grad, dy tensorops.Tensor, ids uint64) error {
	rows, cols := dy.Rows(), dy.Cols()
	if rows == 0 {
		return nil
	}
	tables, err := x.scratch(2 * 4 * rows)
	if err != nil {
		return err
	}
	order, count := tables, tables+uint64(4*rows)
	const few = 128 // rows to a block: a few thousand reach many multiprocessors
	err = launch(x, "embed_order", grid{x: ceil(rows, few), threads: few}, &struct {
		order, count, ids, fault uint64
		vocabulary, rows         int64
	}{order, count, ids, x.fault, int64(grad.Rows()), int64(rows)})
	if err != nil || cols == 0 {
		return err
	}
	const threads = 64
	half := halves(dy)
	return launch(x, mixed("embed_grad", half), grid{x: rows, y: ceil(cols, 4*threads), threads: threads}, &struct {
		grad, dy, ids, order, count uint64
		cols                        int64
		aligned, halves             uint32
	}{
		grad: address(grad), dy: address(dy), ids: ids, order: order, count: count,
		cols: int64(cols), aligned: alignedRows(cols, grad, dy), halves: half,
	})
}

func addPositions(x *exec, o *tensorops.Op) error {
	a := o.AddPositions()
	weight := a.Weight
	if !a.Starts.Valid() {
		weight = a.Weight.RowRange(a.First, a.First+a.Period)
	}
	cols, half := weight.Cols(), halves(a.Out, a.X, weight)
	return onRows(x, mixed("add_positions", half), a.X.Rows(), cols, &struct {
		out, x, weight, starts    uint64
		period, cols, first, rows int64
		aligned, halves           uint32
	}{
		out: address(a.Out), x: address(a.X), weight: address(weight), starts: address(a.Starts),
		period: int64(a.Period), cols: int64(cols), first: int64(a.First), rows: int64(weight.Rows()),
		aligned: alignedRows(cols, a.Out, a.X, weight), halves: half,
	})
}

func positionsGrad(x *exec, o *tensorops.Op) error {
	a := o.PositionsGrad()
	rows, cols := a.DY.Rows(), a.DY.Cols()
	if rows == 0 {
		return nil
	}
	if a.Starts.Valid() {
		ids, err := x.scratch(4 * rows)
		if err != nil {
			return err
		}
		err = launch(x, "position_ids", x.over(rows), &struct {
			ids, starts                uint64
			period, first, rows, count int64
		}{ids, address(a.Starts), int64(a.Period), int64(a.First), int64(a.Grad.Rows()), int64(rows)})
		if err != nil {
			return err
		}
		return addRows(x, a.Grad, a.DY, ids)
	}
	grad, half := a.Grad.RowRange(a.First, a.First+a.Period), halves(a.DY)
	return onRows(x, mixed("positions_grad", half), a.Period, cols, &struct {
		grad, dy           uint64
		period, cols, rows int64
		aligned, halves    uint32
	}{
		grad: address(grad), dy: address(a.DY),
		period: int64(a.Period), cols: int64(cols), rows: int64(rows), aligned: alignedRows(cols, grad, a.DY), halves: half,
	})
}
