package tensorops

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// args checks what an operation's operands are read as.
type args struct {
	t    *testing.T
	l    *List
	seen map[Kind]bool
}

// recorded checks that the operands read from the list's last operation are
// those that were given, that putting them makes the same operation, and that
// errors call each tensor by its name.
func recorded[A interface{ Put(*Op) }](c args, kind Kind, read func(*Op) A, want A) {
	c.t.Helper()
	ops := c.l.Ops()
	if c.l.Err() != nil || len(ops) != 1 || ops[0].Kind != kind {
		c.t.Fatalf("%v: recorded %d operations, error %v", kind, len(ops), c.l.Err())
	}
	c.seen[kind] = true
	o, got := &ops[0], leaves{}
	got.add(reflect.ValueOf(read(o)))
	given := leaves{}
	given.add(reflect.ValueOf(want))
	for name, v := range given {
		if t, ok := v.(Tensor); ok && t != got[name] || !ok && !reflect.DeepEqual(v, got[name]) {
			c.t.Errorf("%v: %s is read as %v, given was %v", kind, name, got[name], v)
		}
	}
	again := Op{Kind: kind}
	want.Put(&again)
	if again.T != o.T || again.I != o.I || again.F != o.F || again.Flags != o.Flags || again.Rotation != o.Rotation || again.Key != o.Key ||
		again.U != o.U {
		c.t.Errorf("%v: put again it is %v, recorded was %v", kind, &again, o)
	}
	names := strings.Fields(kinds[kind].operands)
	for i, name := range names {
		if o.T[i] != given[strings.ToLower(name)] {
			c.t.Errorf("%v: operand %d is called %s", kind, i, name)
		}
	}
	for i, t := range o.T {
		if t.Valid() && i >= len(names) {
			c.t.Errorf("%v: operand %d has no name", kind, i)
		}
	}
	c.l.Reset()
}

// leaves are the fields of a struct and of those in it, by their names in lower
// case. A mask counts as one.
type leaves map[string]any

func (l leaves) add(s reflect.Value) {
	for i := range s.NumField() {
		f, v := s.Type().Field(i), s.Field(i)
		if f.Anonymous {
			l.add(v)
			continue
		}
		l[strings.ToLower(f.Name)] = v.Interface()
	}
	if grad, ok := l["grad"]; ok {
		l["dlogits"] = grad // the table's name for a loss's
	}
}

// TestArgs: each operation's operands are read as they were recorded.
func TestArgs(t *testing.T) {
	l := NewList(NewHostMemory(0).NewArena("args"), nil)
	c := args{t, l, make(map[Kind]bool)}
	// No two operands are the same tensor, nor two numbers the same.
	f := func(dims ...int) Tensor { return l.Alloc(Float32, dims...) }
	d := func(dims ...int) Tensor { return l.Alloc(Float64, dims...) }
	ids := func(dims ...int) Tensor { return l.Alloc(Int32, dims...) }
	mask := Mask{Key: rng.NewKey(3, 4), Step: 5, First: 6, P: 0.25}

	product := MatMulOpts{Accumulate: true, TransA: true, Packed: f(32 * 32)}
	matMul := MatMulArgs{f(2, 5), f(3, 2), f(3, 5), product}
	l.MatMul(matMul.C, matMul.A, matMul.B, product)
	recorded(c, KindMatMul, (*Op).MatMul, matMul)
	product = MatMulOpts{TransB: true, Symmetric: true}
	matMul = MatMulArgs{f(3, 3), f(3, 2), f(3, 2), product}
	l.MatMul(matMul.C, matMul.A, matMul.B, product)
	recorded(c, KindMatMul, (*Op).MatMul, matMul)
	product = MatMulOpts{TransB: true, BF16: true, Bias: f(5)}
	matMul = MatMulArgs{f(2, 5), f(2, 3), f(5, 3), product}
	l.MatMul(matMul.C, matMul.A, matMul.B, product)
	recorded(c, KindMatMul, (*Op).MatMul, matMul)
	for _, flags := range [][2]bool{{true, false}, {false, true}} {
		pack := PackArgs{Dst: l.Alloc(packedType(flags[1]), 32*32), B: f(3, 5), TransB: flags[0], BF16: flags[1]}
		l.Pack(pack.Dst, pack.B, pack.TransB, pack.BF16)
		recorded(c, KindPack, (*Op).Pack, pack)
		pack = PackArgs{Dst: l.Alloc(packedType(flags[1]), 4*32*32), B: f(4, 3, 5), TransB: flags[0], BF16: flags[1], Experts: 4}
		l.PackExperts(pack.Dst, pack.B, pack.Experts, pack.TransB, pack.BF16)
		recorded(c, KindPack, (*Op).Pack, pack)
	}
	colSum := ColSumArgs{Sum: f(3), X: f(2, 3)}
	l.ColSum(colSum.Sum, colSum.X)
	recorded(c, KindColSum, (*Op).ColSum, colSum)
	add := AddArgs{Out: f(2), A: f(2), B: f(2)}
	l.Add(add.Out, add.A, add.B)
	recorded(c, KindAdd, (*Op).Add, add)
	scaled := AddScaledArgs{Y: f(2), X: f(2), Skip: f(2), Factor: 0.25}
	l.AddScaled(scaled.Y, scaled.X, scaled.Skip, scaled.Factor)
	recorded(c, KindAddScaled, (*Op).AddScaled, scaled)

	embed := EmbedArgs{Out: f(4, 3), Weight: f(9, 3), IDs: ids(4)}
	l.Embed(embed.Out, embed.Weight, embed.IDs)
	recorded(c, KindEmbed, (*Op).Embed, embed)
	embedGrad := EmbedGradArgs{Grad: f(9, 3), DY: f(4, 3), IDs: ids(4)}
	l.EmbedGrad(embedGrad.Grad, embedGrad.DY, embedGrad.IDs)
	recorded(c, KindEmbedGrad, (*Op).EmbedGrad, embedGrad)
	addPositions := AddPositionsArgs{Out: f(4, 3), X: f(4, 3), Weight: f(9, 3),
		PositionOpts: PositionOpts{Period: 2, First: 1, Starts: ids(4)}}
	l.AddPositions(addPositions.Out, addPositions.X, addPositions.Weight, addPositions.PositionOpts)
	recorded(c, KindAddPositions, (*Op).AddPositions, addPositions)
	positions := PositionsGradArgs{Grad: f(9, 3), DY: f(4, 3), PositionOpts: PositionOpts{Period: 2, First: 1, Starts: ids(4)}}
	l.PositionsGrad(positions.Grad, positions.DY, positions.PositionOpts)
	recorded(c, KindPositionsGrad, (*Op).PositionsGrad, positions)

	layer := LayerNormArgs{Y: f(4, 3), X: f(4, 3), Gamma: f(3), Beta: f(3), Stats: f(4, 2), Eps: 1e-5}
	l.LayerNorm(layer.Y, layer.X, layer.Gamma, layer.Beta, layer.Stats, 1e-5)
	recorded(c, KindLayerNorm, (*Op).LayerNorm, layer)
	layerGrad := NormGradArgs{DX: f(4, 3), DY: f(4, 3), X: f(4, 3), Gamma: f(3), Stats: f(4, 2), Skip: f(4, 3)}
	l.LayerNormGrad(layerGrad.DX, layerGrad.DY, layerGrad.X, layerGrad.Gamma, layerGrad.Stats, layerGrad.Skip)
	recorded(c, KindLayerNormGrad, (*Op).LayerNormGrad, layerGrad)
	layerWeight := LayerNormWeightGradArgs{DGamma: f(3), DBeta: f(3), DY: f(4, 3), X: f(4, 3), Stats: f(4, 2)}
	l.LayerNormWeightGrad(layerWeight.DGamma, layerWeight.DBeta, layerWeight.DY, layerWeight.X, layerWeight.Stats)
	recorded(c, KindLayerNormWeightGrad, (*Op).LayerNormWeightGrad, layerWeight)
	rms := RMSNormArgs{Y: f(4, 3), X: f(4, 3), Gamma: f(3), Stats: f(4), RMSNormOpts: RMSNormOpts{Eps: 1e-5, Offset: 0.5}}
	l.RMSNorm(rms.Y, rms.X, rms.Gamma, rms.Stats, rms.RMSNormOpts)
	recorded(c, KindRMSNorm, (*Op).RMSNorm, rms)
	rmsGrad := NormGradArgs{DX: f(4, 3), DY: f(4, 3), X: f(4, 3), Gamma: f(3), Stats: f(4), Skip: f(4, 3), Offset: 0.5}
	l.RMSNormGrad(rmsGrad.DX, rmsGrad.DY, rmsGrad.X, rmsGrad.Gamma, rmsGrad.Stats, rmsGrad.Skip, rms.RMSNormOpts)
	recorded(c, KindRMSNormGrad, (*Op).RMSNormGrad, rmsGrad)
	rmsWeight := RMSNormWeightGradArgs{DGamma: f(3), DY: f(4, 3), X: f(4, 3), Stats: f(4)}
	l.RMSNormWeightGrad(rmsWeight.DGamma, rmsWeight.DY, rmsWeight.X, rmsWeight.Stats)
	recorded(c, KindRMSNormWeightGrad, (*Op).RMSNormWeightGrad, rmsWeight)

	gelu := GELUArgs{Y: f(2), X: f(2)}
	l.GELU(gelu.Y, gelu.X)
	recorded(c, KindGELU, (*Op).GELU, gelu)
	geluGrad := GELUGradArgs{DX: f(2), DY: f(2), X: f(2)}
	l.GELUGrad(geluGrad.DX, geluGrad.DY, geluGrad.X)
	recorded(c, KindGELUGrad, (*Op).GELUGrad, geluGrad)
	swiGLU := SwiGLUArgs{Y: f(2), Gate: f(2), Up: f(2)}
	l.SwiGLU(swiGLU.Y, swiGLU.Gate, swiGLU.Up)
	recorded(c, KindSwiGLU, (*Op).SwiGLU, swiGLU)
	swiGLUGrad := SwiGLUGradArgs{DGate: f(2), DUp: f(2), DY: f(2), Gate: f(2), Up: f(2)}
	l.SwiGLUGrad(swiGLUGrad.DGate, swiGLUGrad.DUp, swiGLUGrad.DY, swiGLUGrad.Gate, swiGLUGrad.Up)
	recorded(c, KindSwiGLUGrad, (*Op).SwiGLUGrad, swiGLUGrad)
	gate := GateArgs{f(2), f(2), f(2), GateOpts{Act: ClampedSwiGLU, Limit: 7, Alpha: 1.5}}
	l.Gate(gate.Y, gate.Gate, gate.Up, gate.GateOpts)
	recorded(c, KindGate, (*Op).Gate, gate)
	gateGrad := GateGradArgs{f(2), f(2), f(2), f(2), f(2), gate.GateOpts}
	l.GateGrad(gateGrad.DGate, gateGrad.DUp, gateGrad.DY, gateGrad.Gate, gateGrad.Up, gateGrad.GateOpts)
	recorded(c, KindGateGrad, (*Op).GateGrad, gateGrad)
	l.Gate(swiGLU.Y, swiGLU.Gate, swiGLU.Up, GateOpts{})
	recorded(c, KindSwiGLU, (*Op).SwiGLU, swiGLU)
	l.GateGrad(swiGLUGrad.DGate, swiGLUGrad.DUp, swiGLUGrad.DY, swiGLUGrad.Gate, swiGLUGrad.Up, GateOpts{})
	recorded(c, KindSwiGLUGrad, (*Op).SwiGLUGrad, swiGLUGrad)
	act := ActArgs{f(2), f(2), ReLU2}
	l.Act(act.Y, act.X, act.Act)
	recorded(c, KindAct, (*Op).Act, act)
	actGrad := ActGradArgs{f(2), f(2), f(2), ExactGELU}
	l.ActGrad(actGrad.DX, actGrad.DY, actGrad.X, actGrad.Act)
	recorded(c, KindActGrad, (*Op).ActGrad, actGrad)
	l.Act(gelu.Y, gelu.X, TanhGELU)
	recorded(c, KindGELU, (*Op).GELU, gelu)
	l.ActGrad(geluGrad.DX, geluGrad.DY, geluGrad.X, TanhGELU)
	recorded(c, KindGELUGrad, (*Op).GELUGrad, geluGrad)
	softCap := SoftCapArgs{f(2), f(2), 30}
	l.SoftCap(softCap.Y, softCap.X, softCap.Limit)
	recorded(c, KindSoftCap, (*Op).SoftCap, softCap)
	softCapGrad := SoftCapGradArgs{f(2), f(2), f(2), 50}
	l.SoftCapGrad(softCapGrad.DX, softCapGrad.DY, softCapGrad.X, softCapGrad.Limit)
	recorded(c, KindSoftCapGrad, (*Op).SoftCapGrad, softCapGrad)
	dropout := DropoutArgs{Y: f(2), X: f(2), Skip: f(2), Mask: mask}
	l.Dropout(dropout.Y, dropout.X, dropout.Skip, mask)
	recorded(c, KindDropout, (*Op).Dropout, dropout)
	l.Jitter(dropout.Y, dropout.X, dropout.Skip, mask)
	recorded(c, KindJitter, (*Op).Dropout, dropout)

	// 2 sequences of 3 queries and 5 keys; 4 heads of 6 channels, 2 of keys and values.
	options := AttentionOpts{Batch: 2, Heads: 4, KVHeads: 2, Mask: mask, BF16: true, Starts: ids(2, 3)}
	sizes := AttentionSizes{Batch: 2, Queries: 3, Keys: 5, Heads: 4, KVHeads: 2, Width: 6}
	q, k := func() Tensor { return f(6, 24) }, func() Tensor { return f(10, 12) }
	attention := AttentionArgs{O: q(), Q: q(), K: k(), V: k(), LSE: f(2, 4, 3), Starts: options.Starts,
		AttentionSizes: sizes, Mask: mask, BF16: true}
	l.Attention(attention.O, attention.Q, attention.K, attention.V, attention.LSE, options)
	recorded(c, KindAttention, (*Op).Attention, attention)
	grad := AttentionGradArgs{DQ: q(), DK: k(), DV: k(), DO: q(), Q: q(), K: k(), V: k(), O: q(), LSE: f(2, 4, 3), Starts: options.Starts,
		AttentionSizes: sizes,
		Mask:           mask, BF16: true}
	l.AttentionGrad(grad.DQ, grad.DK, grad.DV, grad.DO, grad.Q, grad.K, grad.V, grad.O, grad.LSE, options)
	recorded(c, KindAttentionGrad, (*Op).AttentionGrad, grad)
	recordDelta(c, f)
	// All keys come before the queries.
	options.Whole, options.Window, options.Before, options.Scale, options.SoftCap, options.Onto = true, 9, 7, 0.5, 30, true
	attention.Whole, attention.Window, attention.Before, attention.Scale, attention.SoftCap, attention.Onto = true, 9, 7, 0.5, 30, true
	l.Attention(attention.O, attention.Q, attention.K, attention.V, attention.LSE, options)
	recorded(c, KindAttention, (*Op).Attention, attention)
	heads := SinkSizes{Batch: 2, Queries: 3, Heads: 4, Width: 6}
	sink := AttentionSinkArgs{O: q(), LSE: f(2, 4, 3), Sinks: f(4), SinkSizes: heads}
	l.AttentionSink(sink.O, sink.LSE, sink.Sinks, options)
	recorded(c, KindAttentionSink, (*Op).AttentionSink, sink)
	sinkGrad := AttentionSinkGradArgs{DSinks: f(4), DO: q(), O: q(), LSE: f(2, 4, 3), Sinks: f(4), SinkSizes: heads}
	l.AttentionSinkGrad(sinkGrad.DSinks, sinkGrad.DO, sinkGrad.O, sinkGrad.LSE, sinkGrad.Sinks, options)
	recorded(c, KindAttentionSinkGrad, (*Op).AttentionSinkGrad, sinkGrad)
	recordExperts(c, f, ids)
	turn := RoPEOpts{Heads: 2, Period: 4, First: 1, Starts: ids(8), Rotation: NewRotation([]float64{1, 0.01}, 1), Inverse: true,
		Interleaved: true}
	rope := RoPEArgs{f(8, 12), turn}
	l.RoPE(rope.X, turn)
	recorded(c, KindRoPE, (*Op).RoPE, rope)

	loss := CrossEntropyArgs{Stats: d(LossStats), LSE: d(4), Logits: f(4, 9), Targets: ids(4),
		CrossEntropyOpts: CrossEntropyOpts{Grad: f(4, 9), Scale: 0.5, RowScale: d(4)}}
	l.CrossEntropy(loss.Stats, loss.LSE, loss.Logits, loss.Targets, loss.CrossEntropyOpts)
	recorded(c, KindCrossEntropy, (*Op).CrossEntropy, loss)
	part := CrossEntropyPartArgs{Parts: d(4, LossParts), Logits: f(4, 9), Targets: ids(4), VocabSlice: VocabSlice{First: 3, Vocab: 12}}
	l.CrossEntropyPart(part.Parts, part.Logits, part.Targets, part.VocabSlice)
	recorded(c, KindCrossEntropyPart, (*Op).CrossEntropyPart, part)
	join := CrossEntropyJoinArgs{Stats: d(LossStats), LSE: d(4), Parts: d(8, LossParts), Targets: ids(4), Logits: f(4, 9),
		VocabSlice: VocabSlice{First: 3, Vocab: 12}, CrossEntropyOpts: CrossEntropyOpts{Grad: f(4, 9), Scale: 0.5, RowScale: d(4)}}
	l.CrossEntropyJoin(join.Stats, join.LSE, join.Parts, join.Targets, join.Logits, join.VocabSlice, join.CrossEntropyOpts)
	recorded(c, KindCrossEntropyJoin, (*Op).CrossEntropyJoin, join)

	distill := DistillArgs{Stats: d(DistillStats), Logits: f(4, 9), Targets: ids(4), IDs: ids(4, 3), LogP: f(4, 4),
		DistillOpts: DistillOpts{Grad: f(4, 9), Scale: 0.5, Temperature: 2, Weight: 0.25, Reverse: true}}
	l.Distill(distill.Stats, distill.Logits, distill.Targets, distill.IDs, distill.LogP, distill.DistillOpts)
	recorded(c, KindDistill, (*Op).Distill, distill)

	square := SquaredNormArgs{Out: d(1), X: f(2)}
	l.SquaredNorm(square.Out, square.X)
	recorded(c, KindSquaredNorm, (*Op).SquaredNorm, square)
	step := AdamWOpts{LR: 1, Beta1: 2, Beta2: 3, Eps: 4, WeightDecay: 5, GradScale: 6, Step: 7, ClearGrad: true}
	adamW := AdamWArgs{f(2), f(2), f(2), f(2), step}
	l.AdamW(adamW.W, adamW.M, adamW.V, adamW.G, step)
	recorded(c, KindAdamW, (*Op).AdamW, adamW)
	descent := SGDOpts{LR: 1, Momentum: 2, WeightDecay: 3, GradScale: 4}
	sgd := SGDArgs{f(2), f(2), f(2), descent}
	l.SGD(sgd.W, sgd.M, sgd.G, descent)
	recorded(c, KindSGD, (*Op).SGD, sgd)
	codes := l.Alloc(Uint8, 2)
	narrow := NarrowStateArgs{codes, f(1), f(2), NarrowStateOpts{Root: true, Key: rng.NewKey(5, 6), Update: 7, First: 8}}
	l.NarrowState(narrow.To, narrow.Scales, narrow.X, narrow.NarrowStateOpts)
	recorded(c, KindNarrowState, (*Op).NarrowState, narrow)
	narrow = NarrowStateArgs{To: l.Alloc(BFloat16, 2), X: f(2), NarrowStateOpts: NarrowStateOpts{Nearest: true}}
	l.NarrowState(narrow.To, narrow.Scales, narrow.X, narrow.NarrowStateOpts)
	recorded(c, KindNarrowState, (*Op).NarrowState, narrow)
	widen := WidenStateArgs{f(2), codes, f(1), true}
	l.WidenState(widen.X, widen.From, widen.Scales, widen.Root)
	recorded(c, KindWidenState, (*Op).WidenState, widen)

	fill := FillArgs{T: f(2), Value: 3}
	l.Fill(fill.T, 3)
	recorded(c, KindFill, (*Op).Fill, fill)
	cp := CopyArgs{Dst: f(2), Src: f(2)}
	l.Copy(cp.Dst, cp.Src)
	recorded(c, KindCopy, (*Op).Copy, cp)
	l.PeerCopy(cp.Dst, cp.Src)
	recorded(c, KindPeerCopy, (*Op).Copy, cp)
	upload := UploadArgs{Dst: f(2), Host: []byte("12345678")}
	l.Upload(upload.Dst, upload.Host)
	recorded(c, KindUpload, (*Op).Upload, upload)
	fetch := FetchArgs{Host: []byte("12345678"), Src: f(2)}
	l.Fetch(fetch.Host, fetch.Src)
	recorded(c, KindFetch, (*Op).Fetch, fetch)
	gather := CollectiveArgs{What: AllGather, Dst: f(2, 3), Src: f(2, 3), Dim: 1, Group: Solo{}}
	l.AllGather(gather.Dst, gather.Src, gather.Dim, gather.Group)
	recorded(c, KindCollective, (*Op).Collective, gather)
	gather.Later = true
	l.Begin(gather)
	recorded(c, KindCollective, (*Op).Collective, gather)
	l.Await()
	recorded(c, KindAwait, (*Op).Await, AwaitArgs{})
	l.Reset()
	l.Spin(time.Millisecond)
	recorded(c, KindSpin, (*Op).Spin, SpinArgs{Time: time.Millisecond})
	l.Call(Call{Name: "own", Reads: []Tensor{f(2)}, Func: func(_, _ []Array) error { return nil }})
	if o := l.Ops()[len(l.Ops())-1]; o.Call().Name != "own" || len(o.Call().Reads) != 1 {
		t.Errorf("the call was recorded as %+v", o.Call())
	}
	c.seen[KindCall] = true

	for _, kind := range Kinds() {
		if !c.seen[kind] {
			t.Errorf("%v was not recorded", kind)
		}
	}
}

// recordDelta checks the operations of linear attention: 2 sequences of 3 positions, 2 heads of 5 channels of
// keys and 4 of 6 of values.
func recordDelta(c args, f func(dims ...int) Tensor) {
	l := c.l
	ids := func(n int) Tensor { return l.Alloc(Int32, n) }
	conv := CausalConvArgs{Y: f(6, 7), X: f(6, 7), Weight: f(7, 1, 4), State: f(2, 3, 7), ConvOpts: ConvOpts{Batch: 2, Starts: ids(6)}}
	l.CausalConv(conv.Y, conv.X, conv.Weight, conv.State, conv.ConvOpts)
	recorded(c, KindCausalConv, (*Op).CausalConv, conv)
	convGrad := CausalConvGradArgs{DX: f(6, 7), DY: f(6, 7), X: f(6, 7), Weight: f(7, 1, 4), ConvOpts: ConvOpts{Batch: 2, Starts: ids(6)}}
	l.CausalConvGrad(convGrad.DX, convGrad.DY, convGrad.X, convGrad.Weight, convGrad.ConvOpts)
	recorded(c, KindCausalConvGrad, (*Op).CausalConvGrad, convGrad)
	convWeight := CausalConvWeightGradArgs{DWeight: f(7, 4), DY: f(6, 7), X: f(6, 7), Weight: f(7, 4),
		ConvOpts: ConvOpts{Batch: 2, Starts: ids(6)}}
	l.CausalConvWeightGrad(convWeight.DWeight, convWeight.DY, convWeight.X, convWeight.Weight, convWeight.ConvOpts)
	recorded(c, KindCausalConvWeightGrad, (*Op).CausalConvWeightGrad, convWeight)

	gates := DeltaGatesArgs{Gates: f(6, 8), A: f(6, 4), B: f(6, 4), ALog: f(4), DTBias: f(4),
		DeltaGatesOpts: DeltaGatesOpts{Batch: 2, Starts: ids(6)}}
	l.DeltaGates(gates.Gates, gates.A, gates.B, gates.ALog, gates.DTBias, gates.DeltaGatesOpts)
	recorded(c, KindDeltaGates, (*Op).DeltaGates, gates)
	gatesGrad := DeltaGatesGradArgs{DA: f(6, 4), DB: f(6, 4), DGates: f(6, 8), Gates: f(6, 8), A: f(6, 4), ALog: f(4), DTBias: f(4)}
	l.DeltaGatesGrad(gatesGrad.DA, gatesGrad.DB, gatesGrad.DGates, gatesGrad.Gates, gatesGrad.A, gatesGrad.ALog, gatesGrad.DTBias)
	recorded(c, KindDeltaGatesGrad, (*Op).DeltaGatesGrad, gatesGrad)
	gatesWeight := DeltaGatesWeightGradArgs{DALog: f(4), DDTBias: f(4), DGates: f(6, 8), Gates: f(6, 8), A: f(6, 4), ALog: f(4),
		DTBias: f(4)}
	l.DeltaGatesWeightGrad(gatesWeight.DALog, gatesWeight.DDTBias, gatesWeight.DGates, gatesWeight.Gates, gatesWeight.A, gatesWeight.ALog,
		gatesWeight.DTBias)
	recorded(c, KindDeltaGatesWeightGrad, (*Op).DeltaGatesWeightGrad, gatesWeight)

	options := DeltaOpts{Batch: 2, KeyHeads: 2, ValueHeads: 4, Eps: 0.5}
	sizes := DeltaSizes{Batch: 2, Positions: 3, KeyHeads: 2, ValueHeads: 4, KeyWidth: 5, ValueWidth: 6, Eps: 0.5}
	delta := GatedDeltaArgs{O: f(6, 24), Q: f(6, 10), K: f(6, 10), V: f(6, 24), Gates: f(6, 8), State: f(2, 4, 5, 6), DeltaSizes: sizes}
	l.GatedDelta(delta.O, delta.Q, delta.K, delta.V, delta.Gates, delta.State, options)
	recorded(c, KindGatedDelta, (*Op).GatedDelta, delta)
	grad := GatedDeltaGradArgs{DQ: f(6, 10), DK: f(6, 10), DV: f(6, 24), DGates: f(6, 8), DO: f(6, 24), Q: f(6, 10), K: f(6, 10),
		V:     f(6, 24),
		Gates: f(6, 8), DeltaSizes: sizes}
	l.GatedDeltaGrad(grad.DQ, grad.DK, grad.DV, grad.DGates, grad.DO, grad.Q, grad.K, grad.V, grad.Gates, options)
	recorded(c, KindGatedDeltaGrad, (*Op).GatedDeltaGrad, grad)
}

// TestReadingAllocatesNothing: the operands are values on the stack.
func TestReadingAllocatesNothing(t *testing.T) {
	l := NewList(NewHostMemory(0).NewArena("args"), nil)
	x, lse := l.Alloc(Float32, 2, 4), l.Alloc(Float32, 2)
	l.AttentionGrad(x, x, x, x, x, x, x, x, lse, AttentionOpts{Batch: 1, Heads: 1, KVHeads: 1})
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	o, width := &l.Ops()[0], 0
	if n := testing.AllocsPerRun(100, func() { width += o.AttentionGrad().Width }); n != 0 || width == 0 {
		t.Errorf("%g allocations, width %d", n, width)
	}
}

// recordExperts checks the operations of a router and its experts: 4 rows, each with 2 of 3 experts.
func recordExperts(c args, f, ids func(dims ...int) Tensor) {
	l := c.l
	opts := RouteOpts{Sigmoid: true, Renormalize: true, Scale: 2}
	route := RouteArgs{Scores: f(4, 3), Weights: f(4, 2), Experts: ids(4, 2), Places: ids(4, 2), Offsets: ids(4), Logits: f(4, 3),
		Bias: f(3), RouteOpts: opts}
	l.Route(route.Scores, route.Weights, route.Experts, route.Places, route.Offsets, route.Logits, route.Bias, opts)
	recorded(c, KindRoute, (*Op).Route, route)
	opts = RouteOpts{Renormalize: true, Scale: 2, Balance: 3, Sequences: 2, ZLoss: 4, Loads: f(2, 3)}
	grad := RouteGradArgs{DLogits: f(4, 3), DWeights: f(4, 2), Scores: f(4, 3), Experts: ids(4, 2), Offsets: ids(4), Logits: f(4, 3),
		RouteOpts: opts}
	l.RouteGrad(grad.DLogits, grad.DWeights, grad.Scores, grad.Experts, grad.Offsets, grad.Logits, opts)
	recorded(c, KindRouteGrad, (*Op).RouteGrad, grad)
	stats := RouteStatsArgs{Stats: l.Alloc(Float64, RouteCounts+3), Scores: f(4, 3), Experts: ids(4, 2), Offsets: ids(4), Logits: f(4, 3),
		RouteOpts: RouteOpts{Sigmoid: true, Groups: 3, TopGroups: 2, Sequences: 4}}
	l.RouteStats(stats.Stats, stats.Scores, stats.Experts, stats.Offsets, stats.Logits, stats.RouteOpts)
	recorded(c, KindRouteStats, (*Op).RouteStats, stats)
	count := RouteCountArgs{Counts: f(2, 3), Experts: ids(4, 2)}
	l.RouteCount(count.Counts, count.Experts)
	recorded(c, KindRouteCount, (*Op).RouteCount, count)
	move := RouteBiasArgs{Bias: f(3), Counts: f(3), Rate: 2}
	l.RouteBias(move.Bias, move.Counts, move.Rate)
	recorded(c, KindRouteBias, (*Op).RouteBias, move)
	loads := BalanceLoadsArgs{DLogits: f(4, 3), Sum: l.Alloc(Float64, 1), Scores: f(4, 3), Experts: ids(4, 2), Loads: f(3),
		BalanceOpts: BalanceOpts{Sigmoid: true, Weight: 3}}
	l.BalanceLoads(loads.DLogits, loads.Sum, loads.Scores, loads.Experts, loads.Loads, loads.BalanceOpts)
	recorded(c, KindBalanceLoads, (*Op).BalanceLoads, loads)
	gate := RowGateArgs{Y: f(4, 5), X: f(4, 5), Gate: f(4)}
	l.RowGate(gate.Y, gate.X, gate.Gate)
	recorded(c, KindRowGate, (*Op).RowGate, gate)
	gateGrad := RowGateGradArgs{DX: f(4, 5), DGate: f(4), DY: f(4, 5), X: f(4, 5), Gate: f(4)}
	l.RowGateGrad(gateGrad.DX, gateGrad.DGate, gateGrad.DY, gateGrad.X, gateGrad.Gate)
	recorded(c, KindRowGateGrad, (*Op).RowGateGrad, gateGrad)
	dispatch := DispatchArgs{Rows: f(8, 5), X: f(4, 5), Places: ids(4, 2)}
	l.Dispatch(dispatch.Rows, dispatch.X, dispatch.Places)
	recorded(c, KindDispatch, (*Op).Dispatch, dispatch)
	combine := CombineArgs{Y: f(4, 5), Rows: f(8, 5), Places: ids(4, 2), Weights: f(4, 2)}
	l.Combine(combine.Y, combine.Rows, combine.Places, combine.Weights)
	recorded(c, KindCombine, (*Op).Combine, combine)
	weigh := WeighRowsArgs{Rows: f(8, 5), DRows: f(8, 5), DWeights: f(4, 2), Weights: f(4, 2), Places: ids(4, 2)}
	l.WeighRows(weigh.Rows, weigh.DRows, weigh.DWeights, weigh.Weights, weigh.Places)
	recorded(c, KindWeighRows, (*Op).WeighRows, weigh)
	weigh = WeighRowsArgs{Rows: f(8, 5), DRows: f(8, 5), DWeights: f(8, 1), Weights: f(8, 1), Offsets: ids(3)}
	l.WeighOwnRows(weigh.Rows, weigh.DRows, weigh.DWeights, weigh.Weights, weigh.Offsets)
	recorded(c, KindWeighRows, (*Op).WeighRows, weigh)
	source := SourceOffsetsArgs{Offsets: ids(5), Table: ids(2, 5), Rank: 1}
	l.SourceOffsets(source.Offsets, source.Table, source.Rank)
	recorded(c, KindSourceOffsets, (*Op).SourceOffsets, source)
	sums := GroupedColSumArgs{Sum: f(3, 5), X: f(8, 5), Offsets: ids(4), Weights: f(4, 2), Places: ids(4, 2)}
	l.GroupedColSum(sums.Sum, sums.X, sums.Offsets, sums.Weights, sums.Places)
	recorded(c, KindGroupedColSum, (*Op).GroupedColSum, sums)
	sums = GroupedColSumArgs{Sum: f(3, 5), X: f(8, 5), Offsets: ids(7), Weights: f(8, 1), Source: 1, Sources: 2}
	l.SourceColSum(sums.Sum, sums.X, sums.Offsets, sums.Weights, 1, 2)
	recorded(c, KindGroupedColSum, (*Op).GroupedColSum, sums)
	bias := WeighBiasArgs{DWeights: f(4, 2), DY: f(4, 5), Bias: f(3, 5), Experts: ids(4, 2)}
	l.WeighBias(bias.DWeights, bias.DY, bias.Bias, bias.Experts)
	recorded(c, KindWeighBias, (*Op).WeighBias, bias)
	for _, g := range []GroupedOpts{{}, {TransB: true}, {Accumulate: true}, {BF16: true}, {Sources: 1}, {Bias: f(3, 6)},
		{Packed: f(3 * 32 * 32)}} {
		b := f(3, 5, 6)
		if g.TransB {
			b = f(3, 6, 5)
		}
		product := GroupedMatMulArgs{C: f(8, 6), A: f(8, 5), B: b, Offsets: ids(4), GroupedOpts: g}
		l.GroupedMatMul(product.C, product.A, product.B, product.Offsets, g)
		recorded(c, KindGroupedMatMul, (*Op).GroupedMatMul, product)
		weight := GroupedWeightGradArgs{DWeight: f(3, 6, 5), DY: f(8, 6), X: f(8, 5), Offsets: ids(4), BF16: g.BF16}
		l.GroupedWeightGrad(weight.DWeight, weight.DY, weight.X, weight.Offsets, g.BF16)
		recorded(c, KindGroupedWeightGrad, (*Op).GroupedWeightGrad, weight)
		weight = GroupedWeightGradArgs{DWeight: f(3, 6, 5), DY: f(8, 6), X: f(8, 5), Offsets: ids(10), BF16: g.BF16, Source: 1, Sources: 3}
		l.SourceWeightGrad(weight.DWeight, weight.DY, weight.X, weight.Offsets, 1, 3, g.BF16)
		recorded(c, KindGroupedWeightGrad, (*Op).GroupedWeightGrad, weight)
	}
}
