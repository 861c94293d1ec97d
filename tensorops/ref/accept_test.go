package ref_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// operands draws what an operation asks for: mostly as asked, sometimes another.
type operands struct {
	t *rapid.T
	l *tensorops.List
}

// size draws a dimension.
func (o operands) size(name string) int { return rapid.IntRange(0, 4).Draw(o.t, name) }

// odd is true once in a while.
func (o operands) odd() bool { return rapid.IntRange(0, 40).Draw(o.t, "odd") == 0 }

// number is n, or sometimes a wrong one.
func (o operands) number(n int) int {
	if o.odd() {
		return rapid.IntRange(-1, 5).Draw(o.t, "wrong")
	}
	return n
}

// f is a float32 tensor, d a float64 one, i one of token ids, all zero.
func (o operands) f(dims ...int) tensorops.Tensor { return o.tensor(tensorops.Float32, dims) }
func (o operands) d(dims ...int) tensorops.Tensor { return o.tensor(tensorops.Float64, dims) }
func (o operands) i(dims ...int) tensorops.Tensor { return o.tensor(tensorops.Int32, dims) }

// tensor makes one of the type and shape; sometimes of others, or a view that
// lies in a larger one, or none.
func (o operands) tensor(dtype tensorops.DType, dims []int) tensorops.Tensor {
	if o.odd() {
		return none
	}
	if o.odd() {
		dtype = rapid.SampledFrom([]tensorops.DType{tensorops.Float32, tensorops.Float64, tensorops.Int32}).Draw(o.t, "type")
	}
	if o.odd() {
		dims = rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(o.t, "shape")
	}
	if len(dims) == 2 && rapid.IntRange(0, 3).Draw(o.t, "view") == 0 {
		whole := o.l.Alloc(dtype, dims[0]+2, dims[1]+2)
		o.l.Fill(whole, 0)
		return whole.RowRange(1, 1+dims[0]).Columns(1, 1+dims[1])
	}
	x := o.l.Alloc(dtype, dims...)
	o.l.Fill(x, 0)
	return x
}

// host is memory of n bytes, aligned for any element.
func (o operands) host(bytes int) []byte {
	return tensorops.HostBytes(make([]float64, bytes+1))[:max(0, o.number(bytes))]
}

// starts are none, or those of n rows.
func (o operands) starts(n int) tensorops.Tensor {
	if rapid.Bool().Draw(o.t, "starts") {
		return o.i(n)
	}
	return none
}

// positions draws options of learned positions.
func (o operands) positions(periods, period, first int) tensorops.PositionOpts {
	return tensorops.PositionOpts{Period: o.number(period), First: o.number(first), Starts: o.starts(periods * period)}
}

// gate draws options of a gate.
func (o operands) gate() tensorops.GateOpts {
	g := tensorops.GateOpts{Act: tensorops.Activation(rapid.IntRange(0, 6).Draw(o.t, "activation"))}
	if g.Act == tensorops.ClampedSwiGLU {
		g.Limit, g.Alpha = float64(o.number(7)), float64(o.number(1))
	}
	return g
}

// routing draws options of a router.
func (o operands) routing() tensorops.RouteOpts {
	return tensorops.RouteOpts{Sigmoid: rapid.Bool().Draw(o.t, "sigmoid"), Renormalize: rapid.Bool().Draw(o.t, "renormalize"),
		Scale: float64(o.number(2)), Balance: float64(o.number(0)), Sequences: o.number(1), Groups: o.number(0), TopGroups: o.number(0)}
}

// loads are none, or those of one run.
func (o operands) loads(experts int) tensorops.Tensor {
	if rapid.Bool().Draw(o.t, "loads") {
		return o.f(experts)
	}
	return none
}

// recordings ask for what each recording method needs.
var recordings = map[tensorops.Kind]func(o operands, n, c int){
	tensorops.KindPack: func(o operands, n, c int) {
		if experts := o.size("experts"); experts > 0 {
			o.l.PackExperts(o.f(experts*tensorops.PackedLen(n, c)), o.f(experts, n, c), experts, false, false)
			return
		}
		o.l.Pack(o.f(tensorops.PackedLen(n, c)), o.f(n, c), false, false)
	},
	tensorops.KindMatMul: func(o operands, n, c int) {
		k := o.size("K")
		opts := tensorops.MatMulOpts{TransA: rapid.Bool().Draw(o.t, "transA"), TransB: rapid.Bool().Draw(o.t, "transB")}
		a, b := [2]int{n, k}, [2]int{k, c}
		if opts.TransA {
			a = [2]int{k, n}
		}
		if opts.TransB {
			b = [2]int{c, k}
		}
		switch rapid.IntRange(0, 2).Draw(o.t, "form") {
		case 0:
			opts.Accumulate = true
		case 1:
			opts.Bias = o.f(c)
		}
		o.l.MatMul(o.f(n, c), o.f(a[:]...), o.f(b[:]...), opts)
	},
	tensorops.KindColSum:    func(o operands, n, c int) { o.l.ColSum(o.f(c), o.f(n, c)) },
	tensorops.KindAdd:       func(o operands, n, c int) { o.l.Add(o.f(n, c), o.f(n, c), o.f(c*n)) },
	tensorops.KindEmbed:     func(o operands, n, c int) { o.l.Embed(o.f(n, c), o.f(o.size("V"), c), o.i(n)) },
	tensorops.KindEmbedGrad: func(o operands, n, c int) { o.l.EmbedGrad(o.f(o.size("V"), c), o.f(n, c), o.i(n)) },
	tensorops.KindAddPositions: func(o operands, n, c int) {
		period, first := 1+o.size("period"), o.size("first")
		o.l.AddPositions(o.f(n*period, c), o.f(n, period, c), o.f(first+period, c), o.positions(n, period, first))
	},
	tensorops.KindPositionsGrad: func(o operands, n, c int) {
		period, first := 1+o.size("period"), o.size("first")
		o.l.PositionsGrad(o.f(first+period, c), o.f(n, period, c), o.positions(n, period, first))
	},
	tensorops.KindLayerNorm: func(o operands, n, c int) {
		o.l.LayerNorm(o.f(n, c), o.f(n, c), o.f(c), o.f(c), o.f(n, 2), 1)
	},
	tensorops.KindLayerNormGrad: func(o operands, n, c int) {
		o.l.LayerNormGrad(o.f(n, c), o.f(n, c), o.f(n, c), o.f(c), o.f(n, 2), o.f(n, c))
	},
	tensorops.KindLayerNormWeightGrad: func(o operands, n, c int) {
		o.l.LayerNormWeightGrad(o.f(c), o.f(c), o.f(n, c), o.f(n, c), o.f(n, 2))
	},
	tensorops.KindRMSNorm: func(o operands, n, c int) {
		o.l.RMSNorm(o.f(n, c), o.f(n, c), o.f(c), o.f(n), tensorops.RMSNormOpts{Eps: 1, Offset: 1})
	},
	tensorops.KindRMSNormGrad: func(o operands, n, c int) {
		o.l.RMSNormGrad(o.f(n, c), o.f(n, c), o.f(n, c), o.f(c), o.f(n), o.f(n, c), tensorops.RMSNormOpts{})
	},
	tensorops.KindRMSNormWeightGrad: func(o operands, n, c int) {
		o.l.RMSNormWeightGrad(o.f(c), o.f(n, c), o.f(n, c), o.f(n))
	},
	tensorops.KindGELU:     func(o operands, n, c int) { o.l.GELU(o.f(n, c), o.f(c, n)) },
	tensorops.KindGELUGrad: func(o operands, n, c int) { o.l.GELUGrad(o.f(n, c), o.f(n, c), o.f(n, c)) },
	tensorops.KindSwiGLU:   func(o operands, n, c int) { o.l.SwiGLU(o.f(n, c), o.f(n, c), o.f(n, c)) },
	tensorops.KindSwiGLUGrad: func(o operands, n, c int) {
		o.l.SwiGLUGrad(o.f(n, c), o.f(n, c), o.f(n, c), o.f(n, c), o.f(n, c))
	},
	tensorops.KindGate: func(o operands, n, c int) { o.l.Gate(o.f(n, c), o.f(n, c), o.f(n, c), o.gate()) },
	tensorops.KindGateGrad: func(o operands, n, c int) {
		o.l.GateGrad(o.f(n, c), o.f(n, c), o.f(n, c), o.f(n, c), o.f(n, c), o.gate())
	},
	tensorops.KindAct:     func(o operands, n, c int) { o.l.Act(o.f(n, c), o.f(n, c), o.gate().Act) },
	tensorops.KindActGrad: func(o operands, n, c int) { o.l.ActGrad(o.f(n, c), o.f(n, c), o.f(n, c), o.gate().Act) },
	tensorops.KindSoftCap: func(o operands, n, c int) { o.l.SoftCap(o.f(n, c), o.f(n, c), float64(o.number(1))) },
	tensorops.KindSoftCapGrad: func(o operands, n, c int) {
		o.l.SoftCapGrad(o.f(n, c), o.f(n, c), o.f(n, c), float64(o.number(1)))
	},
	tensorops.KindAddScaled: func(o operands, n, c int) { o.l.AddScaled(o.f(n, c), o.f(n, c), o.f(n, c), 2) },
	tensorops.KindDropout: func(o operands, n, c int) {
		o.l.Dropout(o.f(n, c), o.f(n, c), o.f(n, c), tensorops.Mask{P: float64(o.number(0)) / 4})
	},
	tensorops.KindJitter: func(o operands, n, c int) {
		o.l.Jitter(o.f(n, c), o.f(n, c), o.f(n, c), tensorops.Mask{P: float64(o.number(0)) / 4})
	},
	tensorops.KindRoPE: func(o operands, n, c int) {
		heads, period := 1+o.size("heads"), 1+o.size("period")
		r := tensorops.NewRotation(make([]float64, max(0, o.number(c))), float64(o.number(2)))
		o.l.RoPE(o.f(n*period, heads*(2*c+1)), tensorops.RoPEOpts{Heads: o.number(heads), Period: o.number(period), First: o.number(2),
			Rotation: r, Starts: o.starts(n * period), Interleaved: rapid.Bool().Draw(o.t, "interleaved")})
	},
	tensorops.KindAttention: func(o operands, n, c int) {
		a := drawAttention(o, n, c)
		o.l.Attention(a.q(), a.q(), a.k(), a.k(), a.lse(), a.opts)
	},
	tensorops.KindAttentionGrad: func(o operands, n, c int) {
		a := drawAttention(o, n, c)
		o.l.AttentionGrad(a.q(), a.k(), a.k(), a.q(), a.q(), a.k(), a.k(), a.q(), a.lse(), a.opts)
	},
	tensorops.KindAttentionSink: func(o operands, n, c int) {
		a := drawAttention(o, n, c)
		o.l.AttentionSink(a.q(), a.lse(), o.f(a.heads), a.opts)
	},
	tensorops.KindAttentionSinkGrad: func(o operands, n, c int) {
		a := drawAttention(o, n, c)
		o.l.AttentionSinkGrad(o.f(a.heads), a.q(), a.q(), a.lse(), o.f(a.heads), a.opts)
	},
	tensorops.KindRoute: func(o operands, n, c int) {
		k, bias := 1+o.size("k"), none
		if rapid.Bool().Draw(o.t, "bias") {
			bias = o.f(c)
		}
		o.l.Route(o.f(n, c), o.f(n, k), o.i(n, k), o.i(n, k), o.i(c+1), o.f(n, c), bias, o.routing())
	},
	tensorops.KindRouteGrad: func(o operands, n, c int) {
		k := 1 + o.size("k")
		opts, logits := o.routing(), none
		if rapid.Bool().Draw(o.t, "z") {
			opts.ZLoss, logits = float64(o.number(1)), o.f(n, c)
		}
		opts.Loads = o.loads(c)
		o.l.RouteGrad(o.f(n, c), o.f(n, k), o.f(n, c), o.i(n, k), o.i(c+1), logits, opts)
	},
	tensorops.KindRouteStats: func(o operands, n, c int) {
		logits := none
		if rapid.Bool().Draw(o.t, "z") {
			logits = o.f(n, c)
		}
		opts := o.routing()
		opts.Loads = o.loads(c)
		o.l.RouteStats(o.d(tensorops.RouteCounts+c), o.f(n, c), o.i(n, 1+o.size("k")), o.i(c+1), logits, opts)
	},
	tensorops.KindRouteCount: func(o operands, n, c int) {
		runs := 1 + o.size("runs")
		o.l.RouteCount(o.f(runs, c), o.i(runs*n, 1+o.size("k")))
	},
	tensorops.KindRouteBias: func(o operands, _, c int) { o.l.RouteBias(o.f(c), o.f(c), float64(o.number(1))) },
	tensorops.KindBalanceLoads: func(o operands, n, c int) {
		sum := none
		if rapid.Bool().Draw(o.t, "sum") {
			sum = o.d(1)
		}
		o.l.BalanceLoads(o.f(n, c), sum, o.f(n, c), o.i(n, 1+o.size("k")), o.f(c),
			tensorops.BalanceOpts{Sigmoid: rapid.Bool().Draw(o.t, "sigmoid"), Weight: float64(o.number(2))})
	},
	tensorops.KindRowGate: func(o operands, n, c int) { o.l.RowGate(o.f(n, c), o.f(n, c), o.f(n)) },
	tensorops.KindRowGateGrad: func(o operands, n, c int) {
		o.l.RowGateGrad(o.f(n, c), o.f(n), o.f(n, c), o.f(n, c), o.f(n))
	},
	tensorops.KindDispatch: func(o operands, n, c int) {
		k := 1 + o.size("k")
		o.l.Dispatch(o.f(n*k, c), o.f(n, c), o.i(n, k))
	},
	tensorops.KindCombine: func(o operands, n, c int) {
		k, weights := 1+o.size("k"), none
		if rapid.Bool().Draw(o.t, "weights") {
			weights = o.f(n, k)
		}
		o.l.Combine(o.f(n, c), o.f(n*k, c), o.i(n, k), weights)
	},
	tensorops.KindWeighRows: func(o operands, n, c int) {
		k := 1 + o.size("k")
		if rapid.Bool().Draw(o.t, "own") {
			o.l.WeighOwnRows(o.f(n, c), o.f(n, c), o.f(n, 1), o.f(n, 1), o.i(k))
			return
		}
		o.l.WeighRows(o.f(n*k, c), o.f(n*k, c), o.f(n, k), o.f(n, k), o.i(n, k))
	},
	tensorops.KindGroupedMatMul: func(o operands, n, c int) {
		experts, k := o.size("experts"), o.size("K")
		g := tensorops.GroupedOpts{TransB: rapid.Bool().Draw(o.t, "transB"), Accumulate: rapid.Bool().Draw(o.t, "accumulate"),
			Sources: o.size("sources")}
		b := [2]int{k, c}
		if g.TransB {
			b = [2]int{c, k}
		}
		if rapid.Bool().Draw(o.t, "bias") {
			g.Bias = o.f(experts, c)
		}
		if rapid.Bool().Draw(o.t, "packed") {
			g.Packed = o.f(experts * tensorops.PackedLen(k, c))
		}
		o.l.GroupedMatMul(o.f(n, c), o.f(n, k), o.f(experts, b[0], b[1]), o.i(experts*max(g.Sources, 1)+1), g)
	},
	tensorops.KindGroupedColSum: func(o operands, n, c int) {
		k, weights, places, experts := 1+o.size("k"), none, none, o.size("experts")
		if sources := o.size("sources"); sources > 0 {
			if rapid.Bool().Draw(o.t, "weights") {
				weights = o.f(n, 1)
			}
			o.l.SourceColSum(o.f(experts, c), o.f(n, c), o.i(experts*sources+1), weights, sources-1, sources)
			return
		}
		if rapid.Bool().Draw(o.t, "weights") {
			weights, places = o.f(n, k), o.i(n, k)
		}
		o.l.GroupedColSum(o.f(experts, c), o.f(n*k, c), o.i(experts+1), weights, places)
	},
	tensorops.KindWeighBias: func(o operands, n, c int) {
		k := 1 + o.size("k")
		o.l.WeighBias(o.f(n, k), o.f(n, c), o.f(o.size("experts"), c), o.i(n, k))
	},
	tensorops.KindGroupedWeightGrad: func(o operands, n, c int) {
		experts, k := o.size("experts"), o.size("K")
		if sources := o.size("sources"); sources > 0 {
			o.l.SourceWeightGrad(o.f(experts, c, k), o.f(n, c), o.f(n, k), o.i(experts*sources+1), sources-1, sources, false)
			return
		}
		o.l.GroupedWeightGrad(o.f(experts, c, k), o.f(n, c), o.f(n, k), o.i(experts+1), false)
	},
	tensorops.KindSourceOffsets: func(o operands, _, _ int) {
		sources := 1 + o.size("sources")
		experts := sources * o.size("experts of a rank")
		o.l.SourceOffsets(o.i(experts+1), o.i(sources, experts+1), sources-1)
	},
	tensorops.KindCausalConv: func(o operands, n, c int) {
		k := 1 + o.size("taps")
		o.l.CausalConv(o.f(2*n, c), o.f(2*n, c), o.f(c, k), o.f(2, k-1, c), tensorops.ConvOpts{Batch: o.number(2), Starts: o.starts(2 * n)})
	},
	tensorops.KindCausalConvGrad: func(o operands, n, c int) {
		k := 1 + o.size("taps")
		o.l.CausalConvGrad(o.f(2*n, c), o.f(2*n, c), o.f(2*n, c), o.f(c, k), tensorops.ConvOpts{Batch: o.number(2),
			Starts: o.starts(2 * n)})
	},
	tensorops.KindCausalConvWeightGrad: func(o operands, n, c int) {
		k := 1 + o.size("taps")
		o.l.CausalConvWeightGrad(o.f(c, k), o.f(2*n, c), o.f(2*n, c), o.f(c, k), tensorops.ConvOpts{Batch: o.number(2),
			Starts: o.starts(2 * n)})
	},
	tensorops.KindDeltaGates: func(o operands, n, c int) {
		o.l.DeltaGates(o.f(n, 2*c), o.f(n, c), o.f(n, c), o.f(c), o.f(c), tensorops.DeltaGatesOpts{Batch: o.number(1), Starts: o.starts(n)})
	},
	tensorops.KindDeltaGatesGrad: func(o operands, n, c int) {
		o.l.DeltaGatesGrad(o.f(n, c), o.f(n, c), o.f(n, 2*c), o.f(n, 2*c), o.f(n, c), o.f(c), o.f(c))
	},
	tensorops.KindDeltaGatesWeightGrad: func(o operands, n, c int) {
		o.l.DeltaGatesWeightGrad(o.f(c), o.f(c), o.f(n, 2*c), o.f(n, 2*c), o.f(n, c), o.f(c), o.f(c))
	},
	tensorops.KindGatedDelta: func(o operands, n, c int) {
		keys, values, d := 1+o.size("key heads"), 1+o.size("group"), tensorops.DeltaOpts{Eps: float64(o.number(1))}
		values *= keys
		d.Batch, d.KeyHeads, d.ValueHeads = o.number(2), o.number(keys), o.number(values)
		o.l.GatedDelta(o.f(2*n, values*2), o.f(2*n, keys*c), o.f(2*n, keys*c), o.f(2*n, values*2), o.f(2*n, 2*values), o.f(2, values, c, 2),
			d)
	},
	tensorops.KindGatedDeltaGrad: func(o operands, n, c int) {
		keys, values, d := 1+o.size("key heads"), 1+o.size("group"), tensorops.DeltaOpts{Eps: float64(o.number(1))}
		values *= keys
		d.Batch, d.KeyHeads, d.ValueHeads = o.number(2), o.number(keys), o.number(values)
		q, v, gates := func() tensorops.Tensor { return o.f(2*n, keys*c) }, func() tensorops.Tensor { return o.f(2*n, values*2) },
			func() tensorops.Tensor { return o.f(2*n, 2*values) }
		o.l.GatedDeltaGrad(q(), q(), v(), gates(), v(), q(), q(), v(), gates(), d)
	},
	tensorops.KindCrossEntropy: func(o operands, n, c int) {
		o.l.CrossEntropy(o.d(2), o.d(n), o.f(n, c), o.i(n), tensorops.CrossEntropyOpts{Grad: o.f(n, c), Scale: 1, RowScale: o.d(n)})
	},
	tensorops.KindCrossEntropyPart: func(o operands, n, c int) {
		o.l.CrossEntropyPart(o.d(n, tensorops.LossParts), o.f(n, c), o.i(n), tensorops.VocabSlice{First: o.number(2), Vocab: c + 2})
	},
	tensorops.KindCrossEntropyJoin: func(o operands, n, c int) {
		o.l.CrossEntropyJoin(o.d(2), o.d(n), o.d(2*n, tensorops.LossParts), o.i(n), o.f(n, c),
			tensorops.VocabSlice{First: o.number(2), Vocab: c + 2}, tensorops.CrossEntropyOpts{Grad: o.f(n, c), Scale: 1, RowScale: o.d(n)})
	},
	tensorops.KindDistill: func(o operands, n, c int) {
		k := 1 + o.size("k")%max(c, 1)
		o.l.Distill(o.d(tensorops.DistillStats), o.f(n, c), o.i(n), o.i(n, k), o.f(n, k+1),
			tensorops.DistillOpts{Grad: o.f(n, c), Scale: 1, Temperature: 1, Weight: 1})
	},
	tensorops.KindFill:        func(o operands, n, c int) { o.l.Fill(o.f(n, c), 0) },
	tensorops.KindCopy:        func(o operands, n, c int) { o.l.Copy(o.f(n, c), o.f(n, c)) },
	tensorops.KindPeerCopy:    func(o operands, n, c int) { o.l.PeerCopy(o.f(n, c), o.f(n, c)) },
	tensorops.KindUpload:      func(o operands, n, c int) { o.l.Upload(o.f(n, c), o.host(4*n*c)) },
	tensorops.KindFetch:       func(o operands, n, c int) { o.l.Fetch(o.host(4*n*c), o.f(n, c)) },
	tensorops.KindSquaredNorm: func(o operands, n, c int) { o.l.SquaredNorm(o.d(1), o.f(n, c)) },
	tensorops.KindAdamW: func(o operands, n, c int) {
		o.l.AdamW(o.f(n, c), o.f(n, c), o.f(n, c), o.f(n, c), tensorops.AdamWOpts{Step: o.number(1)})
	},
	tensorops.KindSGD: func(o operands, n, c int) { o.l.SGD(o.f(n, c), o.f(n, c), o.f(n, c), tensorops.SGDOpts{}) },
	tensorops.KindNarrowState: func(o operands, n, c int) {
		o.l.NarrowState(o.tensor(tensorops.BFloat16, []int{n, c}), none, o.f(n, c), tensorops.NarrowStateOpts{Nearest: o.odd()})
		o.l.NarrowState(o.tensor(tensorops.Uint8, []int{n, c}), o.f(o.number(tensorops.StateScales(n*c))), o.f(n, c),
			tensorops.NarrowStateOpts{Root: o.odd()})
	},
	tensorops.KindWidenState: func(o operands, n, c int) {
		o.l.WidenState(o.f(n, c), o.tensor(tensorops.BFloat16, []int{n, c}), none, false)
		o.l.WidenState(o.f(n, c), o.tensor(tensorops.Uint8, []int{n, c}), o.f(tensorops.StateScales(n*c)), o.odd())
	},
	tensorops.KindCollective: func(o operands, n, c int) { o.l.AllReduce(o.f(n, c), tensorops.Sum, tensorops.Solo{}) },
	tensorops.KindAwait:      func(o operands, _, _ int) { o.l.Await() },
	tensorops.KindSpin:       func(o operands, n, _ int) { o.l.Spin(0) },
	tensorops.KindCall: func(o operands, n, c int) {
		o.l.Call(tensorops.Call{Reads: []tensorops.Tensor{o.f(n, c)}, Writes: []tensorops.Tensor{o.f(n, c)},
			Func: func(_, _ []tensorops.Array) error { return nil }})
	},
}

// drawnAttention is an attention of drawn sizes; q, k and lse make operands of
// its shapes.
type drawnAttention struct {
	operands
	opts                      tensorops.AttentionOpts
	heads, kvHeads, tq, tk, d int
}

func drawAttention(o operands, n, c int) drawnAttention {
	a := drawnAttention{operands: o, kvHeads: 1 + o.size("kv heads")/2, tq: n, tk: n + o.size("more keys"), d: c}
	a.heads = a.kvHeads * (1 + o.size("group")/2)
	a.opts = tensorops.AttentionOpts{Batch: o.number(2), Heads: o.number(a.heads), KVHeads: o.number(a.kvHeads),
		Mask:   tensorops.Mask{P: 0.5},
		Window: o.number(3), SoftCap: float64(o.number(2)), Scale: float64(o.number(1)), Starts: o.starts(2 * a.tq)}
	if rapid.Bool().Draw(o.t, "whole") {
		a.opts.Whole, a.opts.Before = true, o.number(a.tk)
	}
	return a
}

func (a drawnAttention) q() tensorops.Tensor   { return a.f(2*a.tq, a.heads*a.d) }
func (a drawnAttention) k() tensorops.Tensor   { return a.f(2*a.tk, a.kvHeads*a.d) }
func (a drawnAttention) lse() tensorops.Tensor { return a.f(2, a.heads, a.tq) }

// TestAcceptedOperationsRun: what does not fit is refused with ErrShape; what
// recording accepts must run, for nobody looks at shapes again.
func TestAcceptedOperationsRun(t *testing.T) {
	dev := ref.New()
	defer dev.Close()
	s := dev.NewStream("accept")
	for _, kind := range tensorops.Kinds() {
		record := recordings[kind]
		if record == nil {
			t.Errorf("%v is not recorded", kind)
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				o := operands{t, s.NewList()}
				record(o, o.size("rows"), o.size("columns"))
				refused := o.l.Err()
				if refused != nil && !errors.Is(refused, tensorops.ErrShape) {
					t.Fatalf("refused, but not with ErrShape: %v", refused)
				}
				err := tensorops.Run(s, o.l)
				if refused == nil && err != nil && !errors.Is(err, tensorops.ErrToken) && !errors.Is(err, tensorops.ErrRoute) {
					t.Fatalf("accepted, but: %v", err)
				}
			})
		})
	}
}
