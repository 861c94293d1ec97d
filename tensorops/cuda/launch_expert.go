package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

var expertLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindRowGate:       rowGate,
	tensorops.KindRowGateGrad:   rowGateGrad,
	tensorops.KindDispatch:      dispatch,
	tensorops.KindCombine:       combine,
	tensorops.KindWeighRows:     weighRows,
	tensorops.KindGroupedColSum: groupedColSum,
	tensorops.KindWeighBias:     weighBias,
}

const (
	groupWarps   = 8   // GROUP_WARPS of expert.cu
	groupColumns = 128 // GROUP_COLUMNS of it
)

func dispatch(x *exec, o *tensorops.Op) error {
	a := o.Dispatch()
	cols, bits := a.X.Cols(), halves(a.Rows, a.X)
	return byWarps(x, mixed("dispatch", bits), a.X.Rows(), &struct {
		rows, x, places        uint64
		fault                  routeFault
		tokens, k, cols, count int64
		aligned, halves        uint32
	}{
		rows: address(a.Rows), x: address(a.X), places: address(a.Places), fault: x.routeFaultOf(o), tokens: int64(a.X.Rows()),
		k: int64(a.Places.Cols()), cols: int64(cols), count: int64(a.Rows.Rows()), aligned: alignedRows(cols, a.Rows, a.X), halves: bits,
	})
}

func combine(x *exec, o *tensorops.Op) error {
	a := o.Combine()
	cols, bits := a.Y.Cols(), halves(a.Y, a.Rows)
	return byWarps(x, mixed("combine", bits), a.Y.Rows(), &struct {
		y, rows, weights, places uint64
		fault                    routeFault
		tokens, k, cols, count   int64
		aligned, halves          uint32
	}{
		y: address(a.Y), rows: address(a.Rows), weights: address(a.Weights), places: address(a.Places), fault: x.routeFaultOf(o),
		tokens: int64(a.Y.Rows()), k: int64(a.Places.Cols()), cols: int64(cols), count: int64(a.Rows.Rows()),
		aligned: alignedRows(cols, a.Y, a.Rows), halves: bits,
	})
}

func weighRows(x *exec, o *tensorops.Op) error {
	a := o.WeighRows()
	cols, bits, used := a.Rows.Cols(), halves(a.Rows, a.DRows), uint64(0)
	if a.Offsets.Valid() {
		used = address(a.Offsets) + uint64(4*(a.Offsets.Len()-1))
	}
	return byWarps(x, mixed("weigh_rows", bits), a.Weights.Len(), &struct {
		rows, drows, dweights, weights, places, used uint64
		fault                                        routeFault
		pairs, cols, count                           int64
		aligned, halves                              uint32
	}{
		rows: address(a.Rows), drows: address(a.DRows), dweights: address(a.DWeights), weights: address(a.Weights),
		places: address(a.Places),
		used:   used, fault: x.routeFaultOf(o), pairs: int64(a.Weights.Len()), cols: int64(cols), count: int64(a.Rows.Rows()),
		aligned: alignedRows(cols, a.Rows, a.DRows), halves: bits,
	})
}

func weighBias(x *exec, o *tensorops.Op) error {
	a := o.WeighBias()
	cols, bits := a.DY.Cols(), halves(a.DY)
	return byWarps(x, mixed("weigh_bias", bits), a.Experts.Len(), &struct {
		dweights, dy, bias, experts uint64
		fault                       routeFault
		pairs, k, cols, count       int64
		aligned, halves             uint32
	}{
		dweights: address(a.DWeights), dy: address(a.DY), bias: address(a.Bias), experts: address(a.Experts), fault: x.routeFaultOf(o),
		pairs: int64(a.Experts.Len()), k: int64(a.Experts.Cols()), cols: int64(cols), count: int64(a.Bias.Rows()),
		aligned: alignedRows(cols, a.DY, a.Bias), halves: bits,
	})
}

func rowGate(x *exec, o *tensorops.Op) error {
	a := o.RowGate()
	rows, cols, bits := a.X.Rows(), a.X.Cols(), halves(a.Y, a.X)
	return byWarps(x, mixed("row_gate", bits), rows, &struct {
		y, x, gate      uint64
		rows, cols      int64
		aligned, halves uint32
	}{address(a.Y), address(a.X), address(a.Gate), int64(rows), int64(cols), alignedRows(cols, a.Y, a.X), bits})
}

func rowGateGrad(x *exec, o *tensorops.Op) error {
	a := o.RowGateGrad()
	rows, cols, bits := a.X.Rows(), a.X.Cols(), halves(a.DX, a.DY, a.X)
	return byWarps(x, mixed("row_gate_grad", bits), rows, &struct {
		dx, dgate, dy, x, gate uint64
		rows, cols             int64
		aligned, halves        uint32
	}{address(a.DX), address(a.DGate), address(a.DY), address(a.X), address(a.Gate), int64(rows), int64(cols),
		alignedRows(cols, a.DX, a.DY, a.X), bits})
}

// groupedColSum has a block for some columns of each expert.
func groupedColSum(x *exec, o *tensorops.Op) error {
	a := o.GroupedColSum()
	rows, cols, parts := a.X.Rows(), a.X.Cols(), max(a.Sources, 1)
	experts := (a.Offsets.Len() - 1) / parts
	if rows == 0 || cols == 0 || experts == 0 {
		return nil
	}
	if experts > maxGridY {
		return tooManyExperts(experts)
	}
	fault, byRow := x.routeFaultOf(o), uint64(0)
	if a.Weights.Valid() && !a.Places.Valid() { // in the order of the rows
		byRow = address(a.Weights)
	} else if a.Weights.Valid() {
		var err error
		if byRow, err = x.scratch(4 * rows); err != nil {
			return err
		}
		if err := each(x, "weights_by_row", rows, &struct {
			byRow, weights, places uint64
			fault                  routeFault
			pairs                  int64
		}{byRow, address(a.Weights), address(a.Places), fault, int64(rows)}); err != nil {
			return err
		}
	}
	g := grid{x: ceil(cols, groupColumns), y: experts, threads: groupWarps * warp}
	return launch(x, "grouped_col_sum", g, &struct {
		sum, x, byRow, offsets      uint64
		fault                       routeFault
		rows, cols                  int64
		experts, parts, source, all int32
		aligned, halves             uint32
	}{
		sum: address(a.Sum), x: address(a.X), byRow: byRow, offsets: address(a.Offsets), fault: fault, rows: int64(rows), cols: int64(cols),
		experts: int32(experts), parts: int32(parts), source: int32(a.Source), all: number(a.Sources == 0),
		aligned: alignedRows(cols, a.X), halves: halves(a.X),
	})
}

func tooManyExperts(experts int) error {
	return fmt.Errorf("%w: %d experts; the limit is %d", tensorops.ErrUnsupported, experts, maxGridY)
}
