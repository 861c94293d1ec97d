package cuda

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

var deltaLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindCausalConv:           causalConv,
	tensorops.KindCausalConvGrad:       causalConvGrad,
	tensorops.KindCausalConvWeightGrad: causalConvWeightGrad,
	tensorops.KindDeltaGates:           deltaGates,
	tensorops.KindDeltaGatesGrad:       deltaGatesGrad,
	tensorops.KindDeltaGatesWeightGrad: deltaGatesWeightGrad,
	tensorops.KindGatedDelta:           gatedDelta,
	tensorops.KindGatedDeltaGrad:       gatedDeltaGrad,
}

// convArgs is conv_args of conv.cu.
type convArgs struct {
	out, x, weight, dy, state, starts          uint64
	xStride, outStride                         int64
	sequences, positions, channels, rowsOfPart int64
	taps                                       int32
	halves                                     uint32
}

// convOf are the arguments of a convolution whose result is out.
func convOf(out, x, weight, dy, state tensorops.Tensor, o tensorops.ConvOpts) *convArgs {
	return &convArgs{
		out: address(out), x: address(x), weight: address(weight), dy: address(dy), state: address(state), starts: address(o.Starts),
		xStride: int64(x.Stride()), outStride: int64(out.Stride()),
		sequences: int64(o.Batch), positions: int64(x.Rows() / o.Batch), channels: int64(x.Cols()), taps: int32(weight.Cols()),
		halves: halves(out, x, dy, state),
	}
}

// each starts a kernel of which each thread takes one of n elements at a time.
func each[A any](x *exec, kernel string, n int, args *A) error {
	if n == 0 {
		return nil
	}
	return launch(x, kernel, x.over(n), args)
}

func causalConv(x *exec, o *tensorops.Op) error {
	a := o.CausalConv()
	args := convOf(a.Y, a.X, a.Weight, tensorops.Tensor{}, a.State, a.ConvOpts)
	if err := each(x, "causal_conv", a.X.Len(), args); err != nil || !a.State.Valid() || a.State.Len() == 0 {
		return err
	}
	return each(x, "causal_conv_state", a.Batch*a.X.Cols(), args)
}

func causalConvGrad(x *exec, o *tensorops.Op) error {
	a := o.CausalConvGrad()
	return each(x, "causal_conv_grad", a.X.Len(), convOf(a.DX, a.X, a.Weight, a.DY, tensorops.Tensor{}, a.ConvOpts))
}

// Sums over rows are made by blocks of so many threads with at least so many rows each, at most so many blocks
// one after another; then add_columns adds them.
const (
	rowSumThreads = 128
	rowSumRows    = 64
	rowSumBlocks  = 256
)

// rowSums is how many rows a block of sums has, and how many blocks there are.
func rowSums(rows int) (ofBlock, blocks int) {
	ofBlock = max(ceil(rows, rowSumBlocks), rowSumRows)
	return ofBlock, ceil(rows, ofBlock)
}

func causalConvWeightGrad(x *exec, o *tensorops.Op) error {
	a := o.CausalConvWeightGrad()
	if a.X.Len() == 0 {
		return nil
	}
	args := convOf(tensorops.Tensor{}, a.X, a.Weight, a.DY, tensorops.Tensor{}, a.ConvOpts)
	ofBlock, blocks := rowSums(a.X.Rows())
	n := a.Weight.Len()
	partial, err := x.scratch(4 * blocks * n)
	if err != nil {
		return err
	}
	args.out, args.rowsOfPart = partial, int64(ofBlock)
	g := grid{x: ceil(a.X.Cols(), rowSumThreads), y: blocks, threads: rowSumThreads}
	if err := launch(x, "causal_conv_weight_grad", g, args); err != nil {
		return err
	}
	return addColumns(x, partial, n, blocks, []uint64{address(a.DWeight)})
}

func deltaGates(x *exec, o *tensorops.Op) error {
	a := o.DeltaGates()
	positions := a.A.Rows()
	if a.Starts.Valid() {
		positions /= a.Batch
	}
	return each(x, "delta_gates", a.A.Len(), &struct {
		gates, in, b, aLog, dtBias, starts uint64
		rows, heads, positions             int64
		halves                             uint32
	}{
		gates: address(a.Gates), in: address(a.A), b: address(a.B), aLog: address(a.ALog), dtBias: address(a.DTBias), starts: address(a.Starts),
		rows: int64(a.A.Rows()), heads: int64(a.A.Cols()), positions: int64(positions), halves: halves(a.A, a.B),
	})
}

func deltaGatesGrad(x *exec, o *tensorops.Op) error {
	a := o.DeltaGatesGrad()
	return each(x, "delta_gates_grad", a.A.Len(), &struct {
		da, db, dgates, gates, in, aLog, dtBias uint64
		rows, heads                             int64
		halves                                  uint32
	}{
		da: address(a.DA), db: address(a.DB), dgates: address(a.DGates), gates: address(a.Gates), in: address(a.A), aLog: address(a.ALog),
		dtBias: address(a.DTBias), rows: int64(a.A.Rows()), heads: int64(a.A.Cols()), halves: halves(a.DA, a.DB, a.A),
	})
}

func deltaGatesWeightGrad(x *exec, o *tensorops.Op) error {
	a := o.DeltaGatesWeightGrad()
	if a.A.Len() == 0 {
		return nil
	}
	ofBlock, blocks := rowSums(a.A.Rows())
	heads := a.A.Cols()
	partial, err := x.scratch(4 * blocks * 2 * heads)
	if err != nil {
		return err
	}
	err = launch(x, "delta_gates_weight_grad", grid{x: ceil(heads, rowSumThreads), y: blocks, threads: rowSumThreads}, &struct {
		partial, dgates, gates, in, aLog, dtBias uint64
		rows, heads, rowsOfBlock                 int64
		halves                                   uint32
	}{
		partial: partial, dgates: address(a.DGates), gates: address(a.Gates), in: address(a.A), aLog: address(a.ALog), dtBias: address(a.DTBias),
		rows: int64(a.A.Rows()), heads: int64(heads), rowsOfBlock: int64(ofBlock), halves: halves(a.A),
	})
	if err != nil {
		return err
	}
	return addColumns(x, partial, heads, blocks, []uint64{address(a.DALog), address(a.DDTBias)})
}

const (
	deltaColumns = 32 // DELTA_COLUMNS of delta.cuh
	deltaChunk   = 64 // DELTA_CHUNK of it
	deltaThreads = 256
)

// deltaSizes is delta_sizes of delta.cuh.
type deltaSizes struct {
	qStride, kStride, vStride                            int64
	positions                                            int64
	eps                                                  float64
	scale                                                float32
	sequences, keyHeads, valueHeads, keyWidth, valueWide int32
}

func deltaSizesOf(s tensorops.DeltaSizes, q, k, v tensorops.Tensor) deltaSizes {
	return deltaSizes{
		qStride: int64(q.Stride()), kStride: int64(k.Stride()), vStride: int64(v.Stride()), positions: int64(s.Positions), eps: s.Eps,
		scale:     float32(1 / math.Sqrt(float64(s.KeyWidth))),
		sequences: int32(s.Batch), keyHeads: int32(s.KeyHeads), valueHeads: int32(s.ValueHeads), keyWidth: int32(s.KeyWidth),
		valueWide: int32(s.ValueWidth),
	}
}

// deltaArgs is delta_args of delta.cuh.
type deltaArgs struct {
	o, q, k, v, gates, state, states, rest uint64
	sizes                                  deltaSizes
}

// launchColumns starts a kernel of delta.cu, of the form for heads of that width.
func launchColumns[A any](x *exec, kernel string, s tensorops.DeltaSizes, args *A) error {
	width := 64
	for width < s.KeyWidth {
		width *= 2
	}
	heads := s.Batch * s.ValueHeads
	if heads > maxGridY {
		return fmt.Errorf("%w: a gated delta rule of %d sequences with %d heads; the limit is %d in all", tensorops.ErrUnsupported, s.Batch,
			s.ValueHeads, maxGridY)
	}
	return launch(x, fmt.Sprint(kernel, "_", width), grid{x: ceil(s.ValueWidth, deltaColumns), y: heads, threads: deltaThreads}, args)
}

func gatedDelta(x *exec, o *tensorops.Op) error {
	a := o.GatedDelta()
	if a.O.Len() == 0 {
		return nil
	}
	return launchColumns(x, "gated_delta", a.DeltaSizes, &deltaArgs{
		o: address(a.O), q: address(a.Q), k: address(a.K), v: address(a.V), gates: address(a.Gates), state: address(a.State),
		sizes: deltaSizesOf(a.DeltaSizes, a.Q, a.K, a.V),
	})
}

// gatedDeltaGrad goes through the positions forward for the state before each chunk, backward for the gradient of
// that after it, and then takes all chunks at once.
func gatedDeltaGrad(x *exec, o *tensorops.Op) error {
	a := o.GatedDeltaGrad()
	if a.DV.Len() == 0 {
		return nil
	}
	heads, chunks := a.Batch*a.ValueHeads, ceil(a.Positions, deltaChunk)
	ofStates, ofRows := 4*heads*chunks*a.KeyWidth*a.ValueWidth, 4*a.DV.Len()
	all, err := x.scratch(2*ofStates + 2*ofRows)
	if err != nil {
		return err
	}
	sizes, states, rest := deltaSizesOf(a.DeltaSizes, a.Q, a.K, a.V), all, all+uint64(2*ofStates)
	if err := launchColumns(x, "gated_delta", a.DeltaSizes, &deltaArgs{
		q: address(a.Q), k: address(a.K), v: address(a.V), gates: address(a.Gates), states: states, rest: rest, sizes: sizes,
	}); err != nil {
		return err
	}
	args := struct {
		dq, dk, dv, dgates, do, q, k, v, gates uint64
		states, rest, dstates, drest           uint64
		dqStride, dkStride, dvStride           int64
		sizes                                  deltaSizes
	}{
		dq: address(a.DQ), dk: address(a.DK), dv: address(a.DV), dgates: address(a.DGates), do: address(a.DO), q: address(a.Q),
		k: address(a.K), v: address(a.V), gates: address(a.Gates),
		states: states, rest: rest, dstates: states + uint64(ofStates), drest: rest + uint64(ofRows),
		dqStride: int64(a.DQ.Stride()), dkStride: int64(a.DK.Stride()), dvStride: int64(a.DV.Stride()), sizes: sizes,
	}
	if err := launchColumns(x, "gated_delta_back", a.DeltaSizes, &args); err != nil {
		return err
	}
	return launch(x, "gated_delta_keys", grid{x: chunks, y: a.Batch * a.KeyHeads, threads: deltaThreads}, &args)
}
