package count

import "maps"

// kernels is the table, by the kernels' names without the form.
var kernels = make(map[string]costOf)

func init() {
	for _, family := range []map[string]costOf{actKernels, normKernels, lossKernels, embedKernels, moveKernels, optimKernels, productKernels(),
		attentionKernels(), deltaKernels(), routeKernels, exchangeKernels, expertKernels, groupedKernels()} {
		maps.Copy(kernels, family)
	}
}

// mask is dropout of rng.cuh.
type mask struct {
	Counters              uint64
	Key0, Key1, Threshold uint32
	Scale                 float32
}

const counterBytes = 16

// counters are what a mask is drawn by.
func (m *mask) counters() Operand { return array(m.Counters, 1, counterBytes).again() }

// Arguments of act.cu and dropout.cu, with how many elements there are.
type (
	twoArrays struct {
		Y, X            uint64
		N               int64
		Aligned, Halves uint32
	}
	threeArrays struct {
		Y, A, B         uint64
		N               int64
		Aligned, Halves uint32
	}
	fourArrays struct {
		DX, DY, X, Y    uint64
		N               int64
		Aligned, Halves uint32
	}
	sixArrays struct {
		DGate, DUp, DY, Gate, Up, Y uint64
		N                           int64
		Aligned, Halves             uint32
	}
	dropArgs struct {
		Y, X, Skip      uint64
		N               int64
		Mask            mask
		Aligned, Halves uint32
	}
	jitterArgs struct {
		Y, X, Skip      uint64
		N               int64
		Mask            mask
		P               float64
		Aligned, Halves uint32
	}
)

// Arguments of gate.cu and rope.cu.
type (
	gateArgs struct {
		Y, Gate, Up     uint64
		N               int64
		Limit, Alpha    float32
		Act             int32
		Aligned, Halves uint32
		Pad             uint32
	}
	gateGradArgs struct {
		DGate, DUp, DY, Gate, Up uint64
		N                        int64
		Limit, Alpha             float32
		Act                      int32
		Aligned, Halves          uint32
		Pad                      uint32
	}
	capArgs struct {
		Y, DY, X        uint64
		N               int64
		Limit, Inverse  float32
		Aligned, Halves uint32
	}
	addScaledArgs struct {
		Y, X, Skip      uint64
		N               int64
		Factor          float32
		Aligned, Halves uint32
		Pad             uint32
	}
	ropeArgs struct {
		X, Starts        uint64
		Stride           int64
		Scale            float64
		Heads, Width     int32
		Apart, Step      int32
		FirstPair, Some  int32
		Period, First    int32
		Periods, Inverse int32
		Halves, Pad      uint32
		Frequencies      [256]float64
	}
)

func three(a *threeArrays, _ *Event, c *Cost) {
	c.writes(either(a.Y, a.N, a.Halves, 0))
	c.reads(either(a.A, a.N, a.Halves, 1), either(a.B, a.N, a.Halves, 2))
}

var actKernels = map[string]costOf{
	"gelu": line(Activations, func(a *twoArrays, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.N, a.Halves, 0))
		c.reads(either(a.X, a.N, a.Halves, 1))
	}),
	"gelu_grad": line(Activations, func(a *fourArrays, _ *Event, c *Cost) {
		c.writes(either(a.DX, a.N, a.Halves, 0), either(a.Y, a.N, a.Halves, 3))
		c.reads(either(a.DY, a.N, a.Halves, 1), either(a.X, a.N, a.Halves, 2))
	}),
	"swiglu": line(Activations, three),
	"swiglu_grad": line(Activations, func(a *sixArrays, _ *Event, c *Cost) {
		c.writes(either(a.DGate, a.N, a.Halves, 0), either(a.DUp, a.N, a.Halves, 1), either(a.Y, a.N, a.Halves, 5))
		c.reads(either(a.DY, a.N, a.Halves, 2), either(a.Gate, a.N, a.Halves, 3), either(a.Up, a.N, a.Halves, 4))
	}),
	"add": line(Residual, three),
	"drop": line(Residual, func(a *dropArgs, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.N, a.Halves, 0))
		c.reads(either(a.X, a.N, a.Halves, 1), either(a.Skip, a.N, a.Halves, 2), a.Mask.counters())
	}),
	"jitter": line(Experts, func(a *jitterArgs, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.N, a.Halves, 0))
		c.reads(either(a.X, a.N, a.Halves, 1), either(a.Skip, a.N, a.Halves, 2), a.Mask.counters())
	}),
	"gate": line(Activations, func(a *gateArgs, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.N, a.Halves, 0))
		c.reads(either(a.Gate, a.N, a.Halves, 1), either(a.Up, a.N, a.Halves, 2))
	}),
	"gate_grad": line(Activations, func(a *gateGradArgs, _ *Event, c *Cost) {
		c.writes(either(a.DGate, a.N, a.Halves, 0), either(a.DUp, a.N, a.Halves, 1))
		c.reads(either(a.DY, a.N, a.Halves, 2), either(a.Gate, a.N, a.Halves, 3), either(a.Up, a.N, a.Halves, 4))
	}),
	"soft_cap": line(Loss, func(a *capArgs, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.N, a.Halves, 0))
		c.reads(either(a.DY, a.N, a.Halves, 1), either(a.X, a.N, a.Halves, 2))
	}),
	"add_scaled": line(Residual, func(a *addScaledArgs, _ *Event, c *Cost) {
		c.writes(either(a.Y, a.N, a.Halves, 0))
		c.reads(either(a.X, a.N, a.Halves, 1), either(a.Skip, a.N, a.Halves, 2))
	}),
	"rope": line(Embeddings, func(a *ropeArgs, _ *Event, c *Cost) {
		size, rows := sizeOf(a.Halves, 0), int64(a.Period)*int64(a.Periods)
		c.reads(array(a.Starts, rows, 4).again())
		if a.Step == 2 { // pairs of neighbors
			for head := range int64(a.Heads) {
				x := matrix(a.X+uint64(size*(head*int64(a.Width)+2*int64(a.FirstPair))), rows, 2*int64(a.Some), a.Stride, size)
				c.writes(x)
				c.reads(x)
			}
			return
		}
		if a.Some == a.Apart && 2*a.Apart == a.Width { // all channels
			x := matrix(a.X, rows, int64(a.Heads)*int64(a.Width), a.Stride, size)
			c.writes(x)
			c.reads(x)
			return
		}
		for half := range int64(2) {
			for head := range int64(a.Heads) {
				at := a.X + uint64(size*(head*int64(a.Width)+int64(a.FirstPair)+half*int64(a.Apart)))
				x := matrix(at, rows, int64(a.Some), a.Stride, size)
				c.writes(x)
				c.reads(x)
			}
		}
	}),
}

// Arguments of norm.cu, norm_grad.cu and colsum.cu.
type (
	normArgs struct {
		Y, X, Gamma, Beta, Stats uint64
		Sum, Skip                uint64
		Eps                      float64
		Rows, Cols               int64
		Aligned, Halves          uint32
		Offset                   float32
		Pad                      uint32
	}
	normGradArgs struct {
		DX, DY, X, Gamma, Stats, Skip, Partial uint64
		Rows, Cols, RowsOfBlock                int64
		Aligned, Halves                        uint32
		Offset                                 float32
		Pad                                    uint32
	}
	columnArgs struct {
		Partial, X, DY, Stats   uint64
		Rows, Cols, RowsOfBlock int64
		Aligned, Halves         uint32
	}
	addColumnsArgs struct {
		Grads         [2]uint64
		Partial       uint64
		Cols          int64
		Blocks, Terms int32
	}
)

// normKept is how many elements of a row each thread keeps in registers.
const normKept = 32

// norm is of a warp or a block a row, which goes a second time through what it does not keep.
func norm(stats int64, byWarps bool) func(a *normArgs, e *Event, c *Cost) {
	return func(a *normArgs, e *Event, c *Cost) {
		n, team := a.Rows*a.Cols, int64(e.Threads)
		if byWarps {
			team = 32
		}
		x, again := either(a.X, n, a.Halves, 1), Operand{}
		switch {
		case a.Cols <= normKept*team:
		case a.Sum == 0:
			x = x.passes(2, a.Cols*sizeOf(a.Halves, 1))
		default:
			again = either(a.Sum, n, a.Halves, 2).again()
			again.Use = Cached // it was just written
		}
		c.writes(either(a.Y, n, a.Halves, 0), array(a.Stats, a.Rows*stats, 4), either(a.Sum, n, a.Halves, 2))
		c.reads(x, either(a.Skip, n, a.Halves, 3), array(a.Gamma, a.Cols, 4).again(), array(a.Beta, a.Cols, 4).again(), again)
	}
}

// normGrad is of a block some rows, each of which it has in registers, or, where those are wide, of a block a row,
// through which it goes twice; terms are the sums that it makes of each column.
func normGrad(stats, terms int64, wide bool) func(a *normGradArgs, e *Event, c *Cost) {
	return func(a *normGradArgs, e *Event, c *Cost) {
		n := a.Rows * a.Cols
		dy, x := either(a.DY, n, a.Halves, 1), either(a.X, n, a.Halves, 2)
		if wide {
			dy, x = dy.passes(2, a.Cols*sizeOf(a.Halves, 1)), x.passes(2, a.Cols*sizeOf(a.Halves, 2))
		}
		c.writes(either(a.DX, n, a.Halves, 0), array(a.Partial, int64(e.Grid[0])*terms*a.Cols, 4))
		c.reads(dy, x, array(a.Stats, a.Rows*stats, 4).again())
		if a.DX != 0 {
			c.reads(array(a.Gamma, a.Cols, 4).again(), either(a.Skip, n, a.Halves, 3))
		}
	}
}

// sumColumns is the first pass of sums over rows.
func sumColumns(terms, stats int64) func(a *columnArgs, e *Event, c *Cost) {
	return func(a *columnArgs, e *Event, c *Cost) {
		c.writes(array(a.Partial, int64(e.Grid[1])*terms*a.Cols, 4))
		c.reads(either(a.X, a.Rows*a.Cols, a.Halves, 0), either(a.DY, a.Rows*a.Cols, a.Halves, 1), array(a.Stats, a.Rows*stats, 4).again())
	}
}

var normKernels = map[string]costOf{
	"layer_norm":                  line(Norms, norm(2, false)),
	"rms_norm":                    line(Norms, norm(1, false)),
	"layer_norm_warps":            line(Norms, norm(2, true)),
	"rms_norm_warps":              line(Norms, norm(1, true)),
	"layer_norm_grad":             line(Norms, normGrad(2, 2, false)),
	"rms_norm_grad":               line(Norms, normGrad(1, 1, false)),
	"wide_layer_norm_grad":        line(Norms, normGrad(2, 2, true)),
	"wide_rms_norm_grad":          line(Norms, normGrad(1, 1, true)),
	"wide_layer_norm_weight_grad": line(Norms, sumColumns(2, 2)),
	"wide_rms_norm_weight_grad":   line(Norms, sumColumns(1, 1)),
	"col_sum":                     line(Columns, sumColumns(1, 0)),
	"add_columns": line(Columns, func(a *addColumnsArgs, _ *Event, c *Cost) {
		for term := range int64(a.Terms) {
			if a.Grads[term] == 0 {
				continue
			}
			grad := array(a.Grads[term], a.Cols, 4)
			c.writes(grad)
			c.reads(grad, matrix(a.Partial+uint64(4*term*a.Cols), int64(a.Blocks), a.Cols, int64(a.Terms)*a.Cols, 4))
		}
	}),
}

// Arguments of loss.cu.
type (
	crossEntropyArgs struct {
		Losses, LSE, Logits, Targets, Grad, Fault uint64
		Cols, Stride, GradStride                  int64
		Scale                                     float32
		Whole, GradHalf, Pad                      uint32
	}
	crossEntropyPartArgs struct {
		Parts, Logits, Targets, Fault uint64
		Cols, Stride, First, Vocab    int64
		Whole, Pad                    uint32
	}
	crossEntropyJoinArgs struct {
		LSE, Logits, Targets, Grad      uint64
		Cols, Stride, GradStride, First int64
		Scale                           float32
		Whole, GradHalf, Pad            uint32
	}
)

// The kernels of loss.cu are each for logits of one type. A block keeps a part of its row in registers. To the rest
// it goes a second time for the gradient, and finds it in the cache that all multiprocessors share: two blocks on each of an
// H100's have 26 MB of logits of GPT-2 under way, where there are 50.
func crossEntropy(size int64) func(a *crossEntropyArgs, e *Event, c *Cost) {
	return func(a *crossEntropyArgs, e *Event, c *Cost) {
		rows := int64(e.Grid[0])
		c.writes(array(a.Losses, rows, 8), array(a.LSE, rows, 8), matrix(a.Grad, rows, a.Cols, a.GradStride, sizeOf(a.GradHalf, 0)))
		c.reads(matrix(a.Logits, rows, a.Cols, a.Stride, size).again(), array(a.Targets, rows, 4).again())
	}
}

func crossEntropyPart(size int64) func(a *crossEntropyPartArgs, e *Event, c *Cost) {
	return func(a *crossEntropyPartArgs, e *Event, c *Cost) {
		rows := int64(e.Grid[0])
		c.writes(array(a.Parts, 2*rows, 8))
		c.reads(matrix(a.Logits, rows, a.Cols, a.Stride, size).again(), array(a.Targets, rows, 4).again())
	}
}

func crossEntropyJoin(size int64) func(a *crossEntropyJoinArgs, e *Event, c *Cost) {
	return func(a *crossEntropyJoinArgs, e *Event, c *Cost) {
		rows := int64(e.Grid[0])
		c.writes(matrix(a.Grad, rows, a.Cols, a.GradStride, sizeOf(a.GradHalf, 0)))
		c.reads(matrix(a.Logits, rows, a.Cols, a.Stride, size), array(a.Targets, rows, 4).again(), array(a.LSE, rows, 8).again())
	}
}

var lossKernels = map[string]costOf{
	"cross_entropy":           line(Loss, crossEntropy(4)),
	"cross_entropy_bf16":      line(Loss, crossEntropy(2)),
	"cross_entropy_part":      line(Loss, crossEntropyPart(4)),
	"cross_entropy_part_bf16": line(Loss, crossEntropyPart(2)),
	"cross_entropy_join":      line(Loss, crossEntropyJoin(4)),
	"cross_entropy_join_bf16": line(Loss, crossEntropyJoin(2)),
	"loss_join": line(Loss, func(a *struct {
		Losses, LSE, Parts uint64
		Rows, Slices       int64
	}, _ *Event, c *Cost) {
		c.writes(array(a.Losses, a.Rows, 8), array(a.LSE, a.Rows, 8))
		lse := array(a.LSE, a.Rows, 8)
		lse.Use = Cached // it was just written
		c.reads(array(a.Parts, 2*a.Rows*a.Slices, 8).again(), lse)
	}),
	"loss_stats": line(Loss, func(a *struct {
		Stats, Losses, Targets uint64
		Rows                   int64
	}, _ *Event, c *Cost) {
		c.writes(array(a.Stats, 2, 8))
		c.reads(array(a.Losses, a.Rows, 8).some(), array(a.Targets, a.Rows, 4))
	}),
}

// Arguments of embed.cu and positions.cu.
type (
	embedArgs struct {
		Out, Weight, IDs, Fault uint64
		Cols, Vocabulary        int64
		Aligned, Halves         uint32
	}
	embedOrderArgs struct {
		Order, Count, IDs, Fault uint64
		Vocabulary, Rows         int64
	}
	embedGradArgs struct {
		Grad, DY, IDs, Order, Count uint64
		Cols                        int64
		Aligned, Halves             uint32
	}
	addPositionsArgs struct {
		Out, X, Weight, Starts    uint64
		Period, Cols, First, Rows int64
		Aligned, Halves           uint32
	}
	positionIDsArgs struct {
		IDs, Starts                uint64
		Period, First, Rows, Count int64
	}
	positionsGradArgs struct {
		Grad, DY           uint64
		Period, Cols, Rows int64
		Aligned, Halves    uint32
	}
)

var embedKernels = map[string]costOf{
	"embed": line(Embeddings, func(a *embedArgs, e *Event, c *Cost) {
		rows := int64(e.Grid[0])
		c.writes(either(a.Out, rows*a.Cols, a.Halves, 0))
		weight := either(a.Weight, rows*a.Cols, a.Halves, 1)
		weight.Use, weight.Of = Gathered, a.Vocabulary*a.Cols*sizeOf(a.Halves, 1)
		c.reads(weight, array(a.IDs, rows, 4).again())
	}),
	"embed_order": line(Embeddings, func(a *embedOrderArgs, _ *Event, c *Cost) {
		c.writes(array(a.Order, a.Rows, 4), array(a.Count, a.Rows, 4))
		c.reads(array(a.IDs, a.Rows, 4).again())
	}),
	"embed_grad": line(Embeddings, func(a *embedGradArgs, e *Event, c *Cost) {
		rows := int64(e.Grid[0])
		// As many rows of the gradient as there are different tokens: at most as many as rows. Where they lie, except
		// the first, is not in the argument.
		grad := array(a.Grad, rows*a.Cols, 4).some()
		grad.Of = anywhere
		c.writes(grad)
		c.reads(grad, either(a.DY, rows*a.Cols, a.Halves, 0), array(a.IDs, rows, 4).some(), array(a.Order, rows, 4).again(),
			array(a.Count, rows, 4).again())
	}),
	"add_positions": line(Embeddings, func(a *addPositionsArgs, e *Event, c *Cost) {
		rows := int64(e.Grid[0])
		c.writes(either(a.Out, rows*a.Cols, a.Halves, 0))
		weight := either(a.Weight, min(rows, a.Period)*a.Cols, a.Halves, 2).again()
		if a.Starts != 0 {
			weight = either(a.Weight, a.Rows*a.Cols, a.Halves, 2).some()
		}
		c.reads(either(a.X, rows*a.Cols, a.Halves, 1), weight, array(a.Starts, rows, 4).again())
	}),
	"position_ids": line(Embeddings, func(a *positionIDsArgs, _ *Event, c *Cost) {
		c.writes(array(a.IDs, a.Count, 4))
		c.reads(array(a.Starts, a.Count, 4))
	}),
	"positions_grad": line(Embeddings, func(a *positionsGradArgs, _ *Event, c *Cost) {
		grad := array(a.Grad, a.Period*a.Cols, 4)
		c.writes(grad)
		c.reads(grad, either(a.DY, a.Rows*a.Cols, a.Halves, 0))
	}),
}

// anywhere is the memory behind an address, of which it is not known how much is an operand's.
const anywhere = 1 << 40

// copyArgs are those of move.cu and round.cu.
type copyArgs struct {
	To, From                         uint64
	Rows, Cols, ToStride, FromStride int64
	Aligned, Pad                     uint32
}

// Arguments of quant.cu.
type (
	quantDecodeArgs struct {
		To, From                       uint64
		Rows, Cols, ToStride, RowBytes int64
		First, Scales                  int64
		NF4, Half, Aligned, Pad        uint32
	}
	quantEncodeArgs struct {
		To, From                         uint64
		Rows, Cols, FromStride, RowBytes int64
		Scales                           int64
		NF4, Pad                         uint32
	}
)

// copied is a copy of elements of so many bytes.
func copied(toBytes, fromBytes int64) func(a *copyArgs, _ *Event, c *Cost) {
	return func(a *copyArgs, _ *Event, c *Cost) {
		c.writes(matrix(a.To, a.Rows, a.Cols, a.ToStride, toBytes))
		c.reads(matrix(a.From, a.Rows, a.Cols, a.FromStride, fromBytes))
	}
}

// fillArgs are those of the fills, the last word of which is the value.
type fillArgs struct {
	To    uint64
	N     int64
	Value uint64
}

func filled(bytes int64) func(a *fillArgs, _ *Event, c *Cost) {
	return func(a *fillArgs, _ *Event, c *Cost) { c.writes(array(a.To, a.N, bytes)) }
}

var moveKernels = map[string]costOf{
	"fill2":      line(Fills, filled(2)),
	"fill4":      line(Fills, filled(4)),
	"fill8":      line(Fills, filled(8)),
	"copy":       line(Roundings, copied(4, 4)),
	"copy2":      line(Roundings, copied(2, 2)),
	"round_bf16": line(Roundings, copied(2, 4)),
	"widen_bf16": line(Roundings, copied(4, 2)),
	"quant_decode": line(Roundings, func(a *quantDecodeArgs, _ *Event, c *Cost) {
		codes := func(n int64) int64 {
			if a.NF4 != 0 {
				return n / 2
			}
			return n
		}
		first, last := codes(a.First), codes(a.First+a.Cols+int64(a.NF4)) // bytes; of two numbers the last may be needed alone
		c.writes(matrix(a.To, a.Rows, a.Cols, a.ToStride, 4/(1+int64(a.Half))))
		c.reads(matrix(a.From+uint64(first), a.Rows, last-first, a.RowBytes, 1).again(),
			matrix(a.From+uint64(a.Scales+a.First/64*4), a.Rows, (a.First+a.Cols+63)/64-a.First/64, a.RowBytes/4, 4).again())
	}),
	"quant_encode": line(Roundings, func(a *quantEncodeArgs, _ *Event, c *Cost) {
		c.writes(matrix(a.To, a.Rows, a.RowBytes, a.RowBytes, 1))
		c.reads(matrix(a.From, a.Rows, a.Cols, a.FromStride, 4).again())
	}),
	"spin": line(Fills, func(*struct{ Nanoseconds uint64 }, *Event, *Cost) {}),
}
