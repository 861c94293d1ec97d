package cuda

import "github.com/troupe-ml/troupe/tensorops"

var normLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindLayerNorm:     layerNorm,
	tensorops.KindLayerNormGrad: layerNormGrad,
	tensorops.KindRMSNorm:       rmsNorm,
	tensorops.KindRMSNormGrad:   rmsNormGrad,
	tensorops.KindColSum:        colSum,
}

// rowThreads is how many threads a block has that works on a row of n elements: a
// few fours for each, in whole warps. Sums over a row depend on it, and so it depends on
// nothing but the row.
func rowThreads(cols int) int {
	const elements = 16 // a thread's share
	return min(max(ceil(ceil(cols, elements), warp)*warp, warp), 512)
}

// onRows starts a kernel in which each block has a row.
func onRows[A any](x *exec, kernel string, rows, cols int, args *A) error {
	if rows == 0 || cols == 0 {
		return nil
	}
	return launch(x, kernel, grid{x: rows, threads: rowThreads(cols)}, args)
}

// alignedRows is alignedFours for rows that follow each other without a gap.
func alignedRows(cols int, operands ...tensorops.Tensor) uint32 {
	if cols%4 != 0 {
		return 0
	}
	return alignedFours(operands...)
}

// alignedEights reports to a kernel, as 0 or 1, whether eight elements of each operand from its
// beginning on may be read 16 bytes at a time. None counts as such.
func alignedEights(operands ...tensorops.Tensor) uint32 {
	for _, t := range operands {
		if address(t)%mostAlignment != 0 {
			return 0
		}
	}
	return 1
}

// alignedEightRows is alignedEights for rows that follow each other without a gap.
func alignedEightRows(cols int, operands ...tensorops.Tensor) uint32 {
	if cols%8 != 0 {
		return 0
	}
	return alignedEights(operands...)
}

// norm is a norm of rows, with the residual that makes them, if it goes with it.
type norm struct {
	kernel                  string
	y, x, gamma, beta, stat tensorops.Tensor
	eps, offset             float64
	residual                *tensorops.Op // makes x; nil: x is there
}

// normOf is the norm that an operation is; ok says that it is one.
func normOf(o *tensorops.Op) (n norm, ok bool) {
	switch o.Kind {
	case tensorops.KindLayerNorm:
		a := o.LayerNorm()
		return norm{kernel: "layer_norm", y: a.Y, x: a.X, gamma: a.Gamma, beta: a.Beta, stat: a.Stats, eps: a.Eps}, true
	case tensorops.KindRMSNorm:
		a := o.RMSNorm()
		return norm{kernel: "rms_norm", y: a.Y, x: a.X, gamma: a.Gamma, stat: a.Stats, eps: a.Eps, offset: a.Offset}, true
	}
	return norm{}, false
}

func layerNorm(x *exec, o *tensorops.Op) error {
	n, _ := normOf(o)
	return n.start(x)
}

func rmsNorm(x *exec, o *tensorops.Op) error { return layerNorm(x, o) }

// residuals carries out a dropout. One with a skip, that drops nothing, is a residual: if its norm is next,
// that is one with it. Where something is dropped, drawing the mask takes the registers that a norm keeps its
// row in.
func residuals(x *exec, ops []tensorops.Op) (int, error) {
	if len(ops) > 1 {
		if n, ok := normOf(&ops[1]); ok && n.takes(&ops[0]) {
			n.residual = &ops[0]
			return 2, n.start(x)
		}
	}
	return 1, drop(x, &ops[0])
}

// takes reports whether the norm is of what a residual makes, all of it, and writes nothing that this
// reads.
func (n norm) takes(o *tensorops.Op) bool {
	a := o.Dropout()
	if a.Mask.P > 0 || !a.Skip.Valid() || !same(a.Y.Matrix(), n.x.Matrix()) || a.Y.Len() == 0 {
		return false
	}
	for _, out := range []tensorops.Tensor{n.y, n.stat} {
		for _, t := range []tensorops.Tensor{a.Y, a.X, a.Skip} {
			if extentOf(out).meets(extentOf(t)) {
				return false
			}
		}
	}
	return true
}

const (
	normKept    = 4   // eights that a thread keeps: NORM_KEPT of norm.cu
	normThreads = 512 // NORM_THREADS of norm_grad.cu

	normWarpsThreads = 128 // WARPS_THREADS of norm.cu
)

// start launches it. A warp has a row if it can keep it, else a block.
func (n norm) start(x *exec) error {
	rows, cols, in := n.x.Rows(), n.x.Cols(), n.x
	if rows == 0 || cols == 0 {
		return nil
	}
	var sum, skip tensorops.Tensor
	if n.residual != nil {
		a := n.residual.Dropout()
		sum, in, skip = a.Y, a.X, a.Skip
	}
	threads := ceil(cols, 8*normKept)
	g := grid{x: rows, threads: min(ceil(threads, warp)*warp, normThreads)}
	if threads <= warp {
		n.kernel += "_warps"
		g = grid{x: ceil(rows, normWarpsThreads/warp), threads: normWarpsThreads}
	}
	return launch(x, n.kernel, g, &struct {
		y, x, gamma, beta, stats uint64
		sum, skip                uint64
		eps                      float64
		rows, cols               int64
		aligned, halves          uint32
		offset                   float32
		pad                      uint32
	}{
		y: address(n.y), x: address(in), gamma: address(n.gamma), beta: address(n.beta), stats: address(n.stat), sum: address(sum),
		skip: address(skip),
		eps:  n.eps, rows: int64(rows), cols: int64(cols),
		aligned: alignedEightRows(cols, n.y, in, n.gamma, n.beta, sum, skip), halves: halves(n.y, in, sum, skip), offset: float32(n.offset),
	})
}

// normGrad is the gradient of what a norm took, or of its weights, or both.
type normGrad struct {
	kernel string
	tensorops.NormGradArgs
	weights       bool
	dgamma, dbeta tensorops.Tensor // dbeta may be none
}

func layerNormGrad(x *exec, o *tensorops.Op) error {
	return normGrad{kernel: "layer_norm_grad", NormGradArgs: o.LayerNormGrad()}.start(x)
}

func rmsNormGrad(x *exec, o *tensorops.Op) error {
	return normGrad{kernel: "rms_norm_grad", NormGradArgs: o.RMSNormGrad()}.start(x)
}

// normWeightGrads carries out the gradient of a norm's weights, and with it that of what the norm took if it
// is next: both read the same.
func normWeightGrads(x *exec, ops []tensorops.Op) (int, error) {
	g, of := normGrad{kernel: "layer_norm_grad", weights: true}, tensorops.KindLayerNormGrad
	if o := &ops[0]; o.Kind == tensorops.KindLayerNormWeightGrad {
		a := o.LayerNormWeightGrad()
		g.DY, g.X, g.Stats, g.dgamma, g.dbeta = a.DY, a.X, a.Stats, a.DGamma, a.DBeta
	} else {
		a := o.RMSNormWeightGrad()
		g.DY, g.X, g.Stats, g.dgamma = a.DY, a.X, a.Stats, a.DGamma
		g.kernel, of = "rms_norm_grad", tensorops.KindRMSNormGrad
	}
	if len(ops) > 1 && ops[1].Kind == of {
		if g.joins(ops[1].LayerNormGrad()) {
			return 2, g.start(x)
		}
	}
	return 1, g.start(x)
}

// joins takes the gradient of what the norm took along, if it is of the same rows and does not
// read the weights' gradients.
func (g *normGrad) joins(a tensorops.NormGradArgs) bool {
	if g.wide() || !same(a.DY.Matrix(), g.DY.Matrix()) || !same(a.X.Matrix(), g.X.Matrix()) || address(a.Stats) != address(g.Stats) {
		return false
	}
	for _, t := range []tensorops.Tensor{a.DX, a.DY, a.X, a.Gamma, a.Stats, a.Skip} {
		if extentOf(t).meets(extentOf(g.dgamma)) || extentOf(t).meets(extentOf(g.dbeta)) {
			return false
		}
	}
	g.NormGradArgs = a
	return true
}

// wide reports whether a row is too wide for a block that keeps it and sums of each of its columns.
func (g normGrad) wide() bool { return g.X.Cols() > 8*normThreads }

func (g normGrad) start(x *exec) error {
	const least = 8 // rows to a block
	rows, cols := g.X.Rows(), g.X.Cols()
	if rows == 0 || cols == 0 {
		return nil
	}
	threads := min(ceil(ceil(cols, 8), warp)*warp, normThreads)
	most := 1024 * max(1, 128/threads) // blocks: to fill a device, and few beside what they read
	grads := []uint64{address(g.dgamma), address(g.dbeta)}
	if g.kernel == "rms_norm_grad" {
		grads = grads[:1]
	}
	if g.wide() && g.weights {
		return sumColumns(x, "wide_"+g.kernel[:len(g.kernel)-len("grad")]+"weight_grad", g.X, g.DY, g.Stats, grads...)
	}
	kernel, ofBlock := g.kernel, max(ceil(rows, most), least)
	if g.wide() {
		kernel, ofBlock = "wide_"+kernel, 1
	}
	blocks := ceil(rows, ofBlock)
	var partial uint64
	if g.weights {
		var err error
		if partial, err = x.scratch(4 * blocks * len(grads) * cols); err != nil {
			return err
		}
	}
	err := launch(x, kernel, grid{x: blocks, threads: threads}, &struct {
		dx, dy, x, gamma, stats, skip, partial uint64
		rows, cols, rowsOfBlock                int64
		aligned, halves                        uint32
		offset                                 float32
		pad                                    uint32
	}{
		dx: address(g.DX), dy: address(g.DY), x: address(g.X), gamma: address(g.Gamma), stats: address(g.Stats), skip: address(g.Skip),
		partial: partial,
		rows:    int64(rows), cols: int64(cols), rowsOfBlock: int64(ofBlock),
		aligned: alignedEightRows(cols, g.DX, g.DY, g.X, g.Gamma, g.Skip), halves: halves(g.DX, g.DY, g.X, g.Skip),
		offset: float32(g.Offset),
	})
	if err != nil || !g.weights {
		return err
	}
	return addColumns(x, partial, cols, blocks, grads)
}
