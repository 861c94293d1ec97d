package cpu

import (
	"time"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/delta"
)

// exec carries out operations for one stream, or helps with ranges of another's.
// Its scratch memory grows to what the largest operation needs and is kept.
type exec struct {
	dev *Device
	op  *tensorops.Op
	job *job // nil for a helper

	shared  packing // a matrix product's packed smaller operand
	packed  packing // a core's own panel of the larger one
	block   packing // a core's own sums of a block of C
	sums    packing // those of all of C
	own     packing // a core's own smaller operand of a unit of experts
	attn    attn.Workspace
	shape   attn.Shape  // of one attention
	heads   []attn.Head // of one key head
	keys    attn.Keys
	rows    []float32  // work space of sums over rows
	product product    // of the stream, copied by its helpers
	group   *groupedOp // of the stream, shared with its helpers
	partial []float64  // sums of blocks; the stream's, shared with its helpers
	masks   []uint32   // of dropout
	random  []uint32   // bits that round an optimizer's state
	groups  []float32  // of a router: the sums of groups, and the ranks of the experts of chosen ones
	numbers []int32    // of a router: the chosen groups
	loads   []int32    // of a router: the rows of each expert in a sequence
	gamma   []float32  // of a norm with an offset
	ones    []float32  // what multiplies an activation without a gate
	unused  []float32  // and the gradient that nobody reads
	byTap   []float32  // weights of a convolution by tap; the stream's, shared with its helpers
	delta   delta.Workspace
	wide    [operandSlots][]float32 // parts of operands of bfloat16
	update  narrowUpdate            // of the stream, copied by its helpers
	chain   []tensorops.Op          // likewise
}

// parallel runs ranges of the current operation over the free cores.
func (x *exec) parallel(n, grain int, run rangeFunc) error {
	return x.dev.cores.parallel(x.job, n, grain, run)
}

// overRows runs ranges of a tensor's rows.
func (x *exec) overRows(t tensorops.Tensor, run rangeFunc) error {
	return x.parallel(t.Rows(), rowGrain(t.Cols()), run)
}

// scratch returns n elements of *buf, growing it.
func scratch[E any](buf *[]E, n int) []E {
	if cap(*buf) < n {
		*buf = make([]E, n)
	}
	return (*buf)[:n]
}

// next carries out the first of some operations, and those behind it that can be one with it. It says how
// many that were.
func (x *exec) next(ops []tensorops.Op) (done int, err error) {
	defer func() {
		x.op = nil
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	x.op = &ops[0]
	if x.op.Kind == tensorops.KindMatMul {
		then := followers(ops)
		return 1 + len(then), x.matMul(then)
	}
	if u, found := narrowUpdateOf(ops); found {
		return u.count(), x.updateNarrow(u)
	}
	if chain := chainOf(ops); len(chain) > 1 {
		return len(chain), x.runChain(chain)
	}
	return 1, x.do(x.op)
}

// do carries out one operation, other than a matrix product.
func (x *exec) do(op *tensorops.Op) error {
	switch op.Kind {
	case tensorops.KindPack:
		return x.packAll()
	case tensorops.KindColSum:
		return x.colSum()
	case tensorops.KindEmbed:
		return x.overRows(op.Embed().Out, embed)
	case tensorops.KindEmbedGrad:
		return x.parallel(op.EmbedGrad().DY.Cols(), colGrain, embedGrad)
	case tensorops.KindAddPositions:
		return x.overRows(op.AddPositions().Out, addPositions)
	case tensorops.KindPositionsGrad:
		return x.parallel(op.PositionsGrad().DY.Cols(), colGrain, positionsGrad)
	case tensorops.KindLayerNorm:
		return x.overRows(op.LayerNorm().X, layerNorm)
	case tensorops.KindLayerNormGrad:
		return x.overRows(op.LayerNormGrad().X, layerNormGrad)
	case tensorops.KindLayerNormWeightGrad:
		return x.layerNormWeightGrad()
	case tensorops.KindRMSNorm:
		return x.overRows(op.RMSNorm().X, rmsNorm)
	case tensorops.KindRMSNormGrad:
		return x.overRows(op.RMSNormGrad().X, rmsNormGrad)
	case tensorops.KindRMSNormWeightGrad:
		return x.rmsNormWeightGrad()
	case tensorops.KindGELU:
		return x.parallel(op.GELU().Y.Len(), heavyGrain, gelu)
	case tensorops.KindGELUGrad:
		return x.parallel(op.GELUGrad().DX.Len(), heavyGrain, geluGrad)
	case tensorops.KindSwiGLU:
		return x.parallel(op.SwiGLU().Y.Len(), heavyGrain, swiGLU)
	case tensorops.KindSwiGLUGrad:
		return x.parallel(op.SwiGLUGrad().DGate.Len(), heavyGrain, swiGLUGrad)
	case tensorops.KindGate:
		return x.parallel(op.Gate().Y.Len(), heavyGrain, gate)
	case tensorops.KindGateGrad:
		return x.parallel(op.GateGrad().DGate.Len(), heavyGrain, gateGrad)
	case tensorops.KindAct:
		return x.parallel(op.Act().Y.Len(), heavyGrain, act)
	case tensorops.KindActGrad:
		return x.parallel(op.ActGrad().DX.Len(), heavyGrain, actGrad)
	case tensorops.KindSoftCap:
		return x.parallel(op.SoftCap().Y.Len(), heavyGrain, softCap)
	case tensorops.KindSoftCapGrad:
		return x.parallel(op.SoftCapGrad().DX.Len(), heavyGrain, softCapGrad)
	case tensorops.KindRoPE:
		return x.overRows(op.RoPE().X, ropeRows)
	case tensorops.KindAttention:
		a := op.Attention()
		return x.parallel(a.Batch*a.Heads, 1, attention)
	case tensorops.KindAttentionGrad:
		a := op.AttentionGrad()
		return x.parallel(a.Batch*a.KVHeads, 1, attentionGrad)
	case tensorops.KindCausalConv:
		return x.causalConv()
	case tensorops.KindCausalConvGrad:
		return x.causalConvGrad()
	case tensorops.KindCausalConvWeightGrad:
		return x.causalConvWeightGrad()
	case tensorops.KindDeltaGates:
		return x.overRows(op.DeltaGates().A, deltaGates)
	case tensorops.KindDeltaGatesGrad:
		return x.overRows(op.DeltaGatesGrad().A, deltaGatesGrad)
	case tensorops.KindDeltaGatesWeightGrad:
		return x.deltaGatesWeightGrad()
	case tensorops.KindGatedDelta:
		a := op.GatedDelta()
		return x.parallel(a.Batch*a.ValueHeads, 1, gatedDelta)
	case tensorops.KindGatedDeltaGrad:
		a := op.GatedDeltaGrad()
		return x.parallel(a.Batch*a.KeyHeads, 1, gatedDeltaGrad)
	case tensorops.KindAttentionSink:
		return x.overRows(op.AttentionSink().O, attentionSink)
	case tensorops.KindAttentionSinkGrad:
		return x.parallel(op.AttentionSinkGrad().Heads, 1, attentionSinkGrad)
	case tensorops.KindRoute:
		return x.route()
	case tensorops.KindRouteGrad:
		a := op.RouteGrad()
		return x.parallel(a.Scores.Rows(), routeGrain(a.Scores.Cols()), routeGrad)
	case tensorops.KindRouteStats:
		return x.routeStats()
	case tensorops.KindRouteCount:
		return x.routeCount()
	case tensorops.KindRouteBias:
		return x.routeBias()
	case tensorops.KindBalanceLoads:
		return x.balanceLoads()
	case tensorops.KindRowGate:
		return x.overRows(op.RowGate().X, rowGate)
	case tensorops.KindRowGateGrad:
		return x.overRows(op.RowGateGrad().X, rowGateGrad)
	case tensorops.KindDispatch:
		return x.overRows(op.Dispatch().X, dispatch)
	case tensorops.KindCombine:
		return x.overRows(op.Combine().Y, combine)
	case tensorops.KindWeighRows:
		return x.weighRows()
	case tensorops.KindGroupedMatMul:
		return x.groupedMatMul()
	case tensorops.KindGroupedWeightGrad:
		return x.groupedWeightGrad()
	case tensorops.KindSourceOffsets:
		return x.sourceOffsets()
	case tensorops.KindGroupedColSum:
		return x.groupedColSum()
	case tensorops.KindWeighBias:
		return x.overRows(op.WeighBias().DY, weighBias)
	case tensorops.KindDropout:
		return x.parallel(op.Dropout().Y.Len(), heavyGrain, dropout)
	case tensorops.KindJitter:
		return x.parallel(op.Dropout().Y.Len(), heavyGrain, jitter)
	case tensorops.KindAdd:
		return x.parallel(op.Add().Out.Len(), lightGrain, add)
	case tensorops.KindAddScaled:
		return x.parallel(op.AddScaled().Y.Len(), lightGrain, addScaled)
	case tensorops.KindCrossEntropy:
		return x.crossEntropy()
	case tensorops.KindCrossEntropyPart:
		a := op.CrossEntropyPart()
		return x.parallel(a.Logits.Rows(), max(1, heavyGrain/a.Logits.Cols()), crossEntropyPart)
	case tensorops.KindCrossEntropyJoin:
		return x.crossEntropyJoin()
	case tensorops.KindDistill:
		return x.distill()
	case tensorops.KindFill:
		return x.fill()
	case tensorops.KindCopy, tensorops.KindPeerCopy:
		a := op.Copy()
		switch {
		case a.Dst.DType().Quantized():
			return x.overRows(a.Dst, quantizeRows)
		case a.Src.DType().Quantized():
			return x.overRows(a.Dst, widenRows)
		}
		return x.overRows(a.Dst, copyRows)
	case tensorops.KindUpload:
		a := op.Upload()
		copy(tensorops.Bytes(a.Dst), a.Host)
		return nil
	case tensorops.KindFetch:
		a := op.Fetch()
		copy(a.Host, tensorops.Bytes(a.Src))
		return nil
	case tensorops.KindSquaredNorm:
		return x.squaredNorm()
	case tensorops.KindAdamW:
		return x.parallel(op.AdamW().W.Len(), heavyGrain, adamW)
	case tensorops.KindSGD:
		return x.parallel(op.SGD().W.Len(), lightGrain, sgd)
	case tensorops.KindNarrowState:
		return x.parallel(tensorops.StateScales(op.NarrowState().X.Len()), stateGrain, narrowState)
	case tensorops.KindWidenState:
		return x.parallel(tensorops.StateScales(op.WidenState().X.Len()), stateGrain, widenState)
	case tensorops.KindCall:
		return op.Call().Run(tensorops.ArrayOf, tensorops.StoreArray)
	case tensorops.KindSpin:
		for end := time.Now().Add(op.Spin().Time); time.Now().Before(end); {
			spin()
		}
		return nil
	}
	return tensorops.ErrUnsupported
}

// Grains are the smallest ranges worth handing to another core, in elements
// (or columns): about ten microseconds of work.
const (
	lightGrain = 65536
	heavyGrain = 16384
	colGrain   = 64
)

// rowGrain is the number of rows of c columns that are worth a range.
func rowGrain(c int) int { return max(1, lightGrain/2/max(c, 1)) }

// f32 views a tensor's elements; strided views keep their gaps.
func f32(t tensorops.Tensor) []float32 { return tensorops.Elements[float32](t) }

// optional views the elements of an operand that may be none: then it is nil.
func optional(t tensorops.Tensor) []float32 {
	if !t.Valid() {
		return nil
	}
	return f32(t)
}

func f64(t tensorops.Tensor) []float64 { return tensorops.Elements[float64](t) }

func i32(t tensorops.Tensor) []int32 { return tensorops.Elements[int32](t) }
