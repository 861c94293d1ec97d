package optest

import (
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// light leaves out what takes long and adds nothing here.
func light(c Case) bool {
	return c.Kind == tensorops.KindMatMul && !strings.HasSuffix(c.Name, "/variants")
}

// TestCoverage asks that every kind has a case and a tolerance, and that a case
// records what it is named for.
func TestCoverage(t *testing.T) {
	dev := ref.New()
	defer dev.Close()
	s := dev.NewStream("coverage")
	covered := make(map[tensorops.Kind]bool)
	names := make(map[string]bool)
	for _, c := range Cases(Options{Skip: light}) {
		covered[c.Kind] = true
		if names[c.Name] {
			t.Errorf("two cases are named %s and have the same inputs", c.Name)
		}
		names[c.Name] = true
		if !strings.HasPrefix(c.Name, c.Kind.String()+"/") {
			t.Errorf("case %s is of kind %v", c.Name, c.Kind)
		}
		b := newBuilder(s, c.Name)
		c.record(b)
		recorded := false
		for _, op := range b.Ops() {
			recorded = recorded || op.Kind == c.Kind
		}
		if !recorded {
			t.Errorf("case %s records no %v", c.Name, c.Kind)
		}
		if len(b.outputs) == 0 {
			t.Errorf("case %s checks nothing", c.Name)
		}
		if _, err := b.run(s); err != nil {
			t.Errorf("case %s: %v", c.Name, err)
		}
	}
	for _, kind := range tensorops.Kinds() {
		if !covered[kind] {
			t.Errorf("%v has no case", kind)
		}
		if _, ok := tolerances[kind]; !ok {
			t.Errorf("%v has no tolerance", kind)
		}
	}
}

func TestDeterministicRuns(t *testing.T) {
	mk := func(int) tensorops.Device { return ref.New() }
	Deterministic(t, mk, Options{Skip: func(c Case) bool { return c.Kind != tensorops.KindDropout }})
}

// saboteur is the oracle with one operation changed.
type saboteur struct {
	tensorops.Stream
	change func(*tensorops.Op)
}

func (s saboteur) Submit(l *tensorops.List, done func(error)) {
	ops := l.Ops()
	for i := range ops {
		s.change(&ops[i])
	}
	s.Stream.Submit(l, done)
}

// with is a mistake in some operand: it reads all, changes them and puts them back.
func with[A interface{ Put(op *tensorops.Op) }](read func(*tensorops.Op) A, change func(*A)) func(*tensorops.Op) {
	return func(op *tensorops.Op) {
		a := read(op)
		change(&a)
		a.Put(op)
	}
}

// turned is a rotation with other frequencies or another scale.
func turned(r *tensorops.Rotation, faster, scale float64) *tensorops.Rotation {
	frequencies := make([]float64, r.Pairs())
	for i := range frequencies {
		frequencies[i] = faster * r.Frequency(i)
	}
	return tensorops.NewRotation(frequencies, scale*r.Scale())
}

// other is another activation that is a gate's and has none of its numbers.
func other(act tensorops.Activation) tensorops.Activation {
	if act == tensorops.TanhGELU {
		return tensorops.ExactGELU
	}
	return tensorops.TanhGELU
}

// TestFindsMistakes changes operations of one kind, as a mistake in a device
// would, and asks that a case of that kind notices.
func TestFindsMistakes(t *testing.T) {
	type mistake struct {
		kind   tensorops.Kind
		name   string
		change func(*tensorops.Op)
	}
	var mistakes []mistake
	// Each kind in turn does nothing at all. Nobody can tell that from a spin,
	// or from an all-reduce among one member; and the oracle packs nothing.
	for _, kind := range tensorops.Kinds() {
		if kind != tensorops.KindSpin && kind != tensorops.KindAwait && kind != tensorops.KindCollective && kind != tensorops.KindPack {
			mistakes = append(mistakes,
				mistake{kind, "does nothing", func(op *tensorops.Op) { *op = tensorops.Op{Kind: tensorops.KindSpin} }})
		}
	}
	flag := func(f tensorops.Flags) func(*tensorops.Op) { return func(op *tensorops.Op) { op.Flags &^= f } }
	var none tensorops.Tensor
	const off = 1.01 // the factor of a number that is not quite right
	mistakes = append(mistakes,
		mistake{tensorops.KindMatMul, "replaces what it should add to", flag(tensorops.FlagAccumulate)},
		mistake{tensorops.KindMatMul, "forgets the bias", with((*tensorops.Op).MatMul, func(a *tensorops.MatMulArgs) { a.Bias = none })},
		mistake{tensorops.KindMatMul, "takes A for transposed", flag(tensorops.FlagTransA)},
		mistake{tensorops.KindMatMul, "takes B for transposed", flag(tensorops.FlagTransB)},
		mistake{tensorops.KindAddPositions, "starts at 0", with((*tensorops.Op).AddPositions,
			func(a *tensorops.AddPositionsArgs) { a.First = 0 })},
		mistake{tensorops.KindPositionsGrad, "starts at 0", with((*tensorops.Op).PositionsGrad,
			func(a *tensorops.PositionsGradArgs) { a.First = 0 })},
		mistake{tensorops.KindLayerNorm, "forgets beta", with((*tensorops.Op).LayerNorm,
			func(a *tensorops.LayerNormArgs) { a.Beta = none })},
		mistake{tensorops.KindLayerNorm, "has another eps", with((*tensorops.Op).LayerNorm,
			func(a *tensorops.LayerNormArgs) { a.Eps *= off })},
		mistake{tensorops.KindLayerNormGrad, "forgets skip", with((*tensorops.Op).LayerNormGrad,
			func(a *tensorops.NormGradArgs) { a.Skip = none })},
		mistake{tensorops.KindLayerNormWeightGrad, "forgets dbeta", with((*tensorops.Op).LayerNormWeightGrad,
			func(a *tensorops.LayerNormWeightGradArgs) { a.DBeta = none })},
		mistake{tensorops.KindRMSNorm, "has another eps", with((*tensorops.Op).RMSNorm, func(a *tensorops.RMSNormArgs) { a.Eps *= off })},
		mistake{tensorops.KindRMSNormGrad, "forgets skip", with((*tensorops.Op).RMSNormGrad,
			func(a *tensorops.NormGradArgs) { a.Skip = none })},
		mistake{tensorops.KindRoPE, "does not turn back", flag(tensorops.FlagInverse)},
		mistake{tensorops.KindRoPE, "forgets starts", with((*tensorops.Op).RoPE, func(a *tensorops.RoPEArgs) { a.Starts = none })},
		mistake{tensorops.KindAddPositions, "forgets starts", with((*tensorops.Op).AddPositions,
			func(a *tensorops.AddPositionsArgs) { a.Starts = none })},
		mistake{tensorops.KindPositionsGrad, "forgets starts", with((*tensorops.Op).PositionsGrad,
			func(a *tensorops.PositionsGradArgs) { a.Starts = none })},
		mistake{tensorops.KindAttention, "forgets starts", with((*tensorops.Op).Attention,
			func(a *tensorops.AttentionArgs) { a.Starts = none })},
		mistake{tensorops.KindAttentionGrad, "forgets starts", with((*tensorops.Op).AttentionGrad,
			func(a *tensorops.AttentionGradArgs) { a.Starts = none })},
		mistake{tensorops.KindRoPE, "starts at 0", with((*tensorops.Op).RoPE, func(a *tensorops.RoPEArgs) { a.First = 0 })},
		mistake{tensorops.KindRMSNorm, "forgets the offset", with((*tensorops.Op).RMSNorm,
			func(a *tensorops.RMSNormArgs) { a.Offset = 0 })},
		mistake{tensorops.KindRMSNormGrad, "forgets the offset", with((*tensorops.Op).RMSNormGrad,
			func(a *tensorops.NormGradArgs) { a.Offset = 0 })},
		mistake{tensorops.KindRoPE, "has other frequencies", with((*tensorops.Op).RoPE,
			func(a *tensorops.RoPEArgs) { a.Rotation = turned(a.Rotation, off, 1) })},
		mistake{tensorops.KindRoPE, "has another scale", with((*tensorops.Op).RoPE,
			func(a *tensorops.RoPEArgs) { a.Rotation = turned(a.Rotation, 1, off) })},
		mistake{tensorops.KindAddScaled, "forgets skip", with((*tensorops.Op).AddScaled,
			func(a *tensorops.AddScaledArgs) { a.Skip = none })},
		mistake{tensorops.KindAddScaled, "has another factor", with((*tensorops.Op).AddScaled,
			func(a *tensorops.AddScaledArgs) { a.Factor *= off })},
		mistake{tensorops.KindGate, "has another activation", with((*tensorops.Op).Gate,
			func(a *tensorops.GateArgs) { a.Act = other(a.Act) })},
		mistake{tensorops.KindGateGrad, "has another activation", with((*tensorops.Op).GateGrad,
			func(a *tensorops.GateGradArgs) { a.Act = other(a.Act) })},
		mistake{tensorops.KindGate, "has another limit", with((*tensorops.Op).Gate, func(a *tensorops.GateArgs) { a.Limit *= off })},
		mistake{tensorops.KindGateGrad, "has another limit", with((*tensorops.Op).GateGrad,
			func(a *tensorops.GateGradArgs) { a.Limit *= off })},
		mistake{tensorops.KindGate, "has another alpha", with((*tensorops.Op).Gate, func(a *tensorops.GateArgs) { a.Alpha *= off })},
		mistake{tensorops.KindGateGrad, "has another alpha", with((*tensorops.Op).GateGrad,
			func(a *tensorops.GateGradArgs) { a.Alpha *= off })},
		mistake{tensorops.KindAct, "has another activation", with((*tensorops.Op).Act,
			func(a *tensorops.ActArgs) { a.Act = other(a.Act) })},
		mistake{tensorops.KindActGrad, "has another activation", with((*tensorops.Op).ActGrad,
			func(a *tensorops.ActGradArgs) { a.Act = other(a.Act) })},
		mistake{tensorops.KindSoftCap, "has another limit", with((*tensorops.Op).SoftCap,
			func(a *tensorops.SoftCapArgs) { a.Limit *= off })},
		mistake{tensorops.KindSoftCapGrad, "has another limit", with((*tensorops.Op).SoftCapGrad,
			func(a *tensorops.SoftCapGradArgs) { a.Limit *= off })},
		mistake{tensorops.KindAttention, "drops nothing", with((*tensorops.Op).Mask, func(a *tensorops.Mask) { a.P = 0 })},
		mistake{tensorops.KindAttention, "starts its mask one late", with((*tensorops.Op).Mask, func(a *tensorops.Mask) { a.First++ })},
		mistake{tensorops.KindAttention, "forgets the soft cap", with((*tensorops.Op).Attention,
			func(a *tensorops.AttentionArgs) { a.SoftCap = 0 })},
		mistake{tensorops.KindAttention, "forgets the factor", with((*tensorops.Op).Attention,
			func(a *tensorops.AttentionArgs) { a.Scale = 0 })},
		mistake{tensorops.KindAttention, "takes the keys for those right before the queries", with((*tensorops.Op).Attention,
			func(a *tensorops.AttentionArgs) { a.Before = min(a.Before, a.Keys) })},
		mistake{tensorops.KindAttentionGrad, "forgets the soft cap", with((*tensorops.Op).AttentionGrad,
			func(a *tensorops.AttentionGradArgs) { a.SoftCap = 0 })},
		mistake{tensorops.KindAttentionGrad, "drops nothing", with((*tensorops.Op).Mask, func(a *tensorops.Mask) { a.P = 0 })},
		mistake{tensorops.KindAttentionGrad, "starts its mask one late", with((*tensorops.Op).Mask, func(a *tensorops.Mask) { a.First++ })},
		mistake{tensorops.KindDropout, "forgets skip", with((*tensorops.Op).Dropout, func(a *tensorops.DropoutArgs) { a.Skip = none })},
		mistake{tensorops.KindDropout, "has another step", with((*tensorops.Op).Mask, func(a *tensorops.Mask) { a.Step++ })},
		mistake{tensorops.KindDropout, "cuts its index to 32 bits", with((*tensorops.Op).Mask,
			func(a *tensorops.Mask) { a.First = uint64(uint32(a.First)) })},
		mistake{tensorops.KindDropout, "has another P", with((*tensorops.Op).Mask, func(a *tensorops.Mask) { a.P *= off })},
		mistake{tensorops.KindCrossEntropy, "has another scale", with((*tensorops.Op).CrossEntropy,
			func(a *tensorops.CrossEntropyArgs) { a.Scale *= off })},
		mistake{tensorops.KindRoute, "forgets the sum",
			with((*tensorops.Op).Route, func(a *tensorops.RouteArgs) { a.Renormalize = false })},
		mistake{tensorops.KindRoute, "forgets the factor", with((*tensorops.Op).Route, func(a *tensorops.RouteArgs) { a.Scale = 0 })},
		mistake{tensorops.KindRoute, "forgets the bias", with((*tensorops.Op).Route, func(a *tensorops.RouteArgs) { a.Bias = none })},
		mistake{tensorops.KindRouteGrad, "forgets the balance", with((*tensorops.Op).RouteGrad,
			func(a *tensorops.RouteGradArgs) { a.Balance = 0 })},
		mistake{tensorops.KindRouteGrad, "forgets the sum", with((*tensorops.Op).RouteGrad,
			func(a *tensorops.RouteGradArgs) { a.Renormalize = false })},
		mistake{tensorops.KindBalanceLoads, "takes sigmoids for a softmax", with((*tensorops.Op).BalanceLoads,
			func(a *tensorops.BalanceLoadsArgs) { a.Sigmoid = false })},
		mistake{tensorops.KindBalanceLoads, "forgets the loss", with((*tensorops.Op).BalanceLoads,
			func(a *tensorops.BalanceLoadsArgs) { a.Sum = none })},
		mistake{tensorops.KindCombine, "forgets the weights", with((*tensorops.Op).Combine,
			func(a *tensorops.CombineArgs) { a.Weights = none })},
		mistake{tensorops.KindGroupedMatMul, "replaces what it should add to", flag(tensorops.FlagAccumulate)},
		mistake{tensorops.KindGroupedMatMul, "rounds nothing", flag(tensorops.FlagBF16)},
		mistake{tensorops.KindGroupedMatMul, "forgets the bias", with((*tensorops.Op).GroupedMatMul,
			func(a *tensorops.GroupedMatMulArgs) { a.Bias = none })},
		mistake{tensorops.KindGroupedWeightGrad, "rounds nothing", flag(tensorops.FlagBF16)},
		mistake{tensorops.KindGroupedColSum, "forgets the weights", with((*tensorops.Op).GroupedColSum,
			func(a *tensorops.GroupedColSumArgs) { a.Weights, a.Places = none, none })},
		mistake{tensorops.KindFill, "has another value", with((*tensorops.Op).Fill, func(a *tensorops.FillArgs) { a.Value *= off })},
		mistake{tensorops.KindAdamW, "counts from 0", with((*tensorops.Op).AdamW, func(a *tensorops.AdamWArgs) { a.Step-- })},
		mistake{tensorops.KindAdamW, "has another rate", with((*tensorops.Op).AdamW, func(a *tensorops.AdamWArgs) { a.LR *= off })},
		mistake{tensorops.KindAdamW, "has another beta1", with((*tensorops.Op).AdamW, func(a *tensorops.AdamWArgs) { a.Beta1 *= off })},
		mistake{tensorops.KindAdamW, "rounds beta2 in float32", with((*tensorops.Op).AdamW,
			func(a *tensorops.AdamWArgs) { a.Beta2 = float64(float32(a.Beta2)) })},
		mistake{tensorops.KindAdamW, "has another eps", with((*tensorops.Op).AdamW, func(a *tensorops.AdamWArgs) { a.Eps *= off })},
		mistake{tensorops.KindAdamW, "has another decay", with((*tensorops.Op).AdamW,
			func(a *tensorops.AdamWArgs) { a.WeightDecay *= off })},
		mistake{tensorops.KindAdamW, "has another gradient scale", with((*tensorops.Op).AdamW,
			func(a *tensorops.AdamWArgs) { a.GradScale *= off })},
		mistake{tensorops.KindSGD, "forgets the momentum", with((*tensorops.Op).SGD, func(a *tensorops.SGDArgs) { a.Momentum = 0 })},
		mistake{tensorops.KindSGD, "has another decay", with((*tensorops.Op).SGD, func(a *tensorops.SGDArgs) { a.WeightDecay *= off })},
		mistake{tensorops.KindSGD, "has another gradient scale", with((*tensorops.Op).SGD,
			func(a *tensorops.SGDArgs) { a.GradScale *= off })},
	)
	dev := ref.New()
	defer dev.Close()
	o, s := new(Oracle), dev.NewStream("saboteur")
	for _, m := range mistakes {
		t.Run(m.kind.String()+" "+m.name, func(t *testing.T) {
			broken := saboteur{s, func(op *tensorops.Op) {
				if op.Kind == m.kind {
					m.change(op)
				}
			}}
			for _, c := range Cases(Options{Skip: func(c Case) bool { return c.Kind != m.kind || light(c) }}) {
				if c.compare(broken, o, 1) != nil {
					return
				}
			}
			t.Error("no case of this kind notices")
		})
	}
}

// erfGELU is the GELU by the error function, which another library may mean by that name.
func erfGELU(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }

// TestFindsAnotherGELU: a device that computes the GELU of a product by the error function is
// found out, by each case in float32, and so is one that leaves the GELU out.
func TestFindsAnotherGELU(t *testing.T) {
	dev := ref.New()
	defer dev.Close()
	o, s := new(Oracle), dev.NewStream("another")
	for _, c := range Cases(Options{Skip: func(c Case) bool { return !strings.HasSuffix(c.Name, "/then gelu") }}) {
		want, err := o.run(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.run(s)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i, w := range want {
			if err := w.compare(got[i], tolerances[c.Kind]); err != nil {
				t.Errorf("%s: the oracle beside itself: %v", c.Name, err)
			}
			if i == 0 || !strings.HasPrefix(w.name, "y of ") || strings.Contains(w.name, "a part") || strings.Contains(w.name, "in place") {
				continue
			}
			of := want[i-1].values()
			for what, f := range map[string]func(float64) float64{"the other GELU": erfGELU, "none": func(x float64) float64 { return x }} {
				wrong := make([]float32, len(of))
				for j, x := range of {
					wrong[j] = float32(f(x))
				}
				if err := w.compare(&output{dtype: tensorops.Float32, shape: w.shape, host: tensorops.HostBytes(wrong), factor: 1},
					tolerances[c.Kind]); err != nil {
					found++
				} else {
					t.Errorf("%s, %s: nothing shows in its place %s", c.Name, w.name, what)
				}
			}
		}
		if found < 10 {
			t.Errorf("%s: %d outputs of a GELU show another", c.Name, found)
		}
	}
}

func TestCompare(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, test := range []struct {
		name      string
		got, want []float32
		ok        bool
	}{
		{"nothing", nil, nil, true},
		{"equal", []float32{1, -2}, []float32{1, -2}, true},
		{"within the scale of the largest", []float32{1e-6, 100}, []float32{0, 100}, true},
		{"beyond it", []float32{1e-6, 1}, []float32{0, 1}, false},
		{"both not a number", []float32{nan, 1}, []float32{nan, 1}, true},
		{"one not a number", []float32{nan, 1}, []float32{0, 1}, false},
		{"the other not a number", []float32{0, 1}, []float32{nan, 1}, false},
		{"both infinite", []float32{inf, 1}, []float32{inf, 1}, true},
		{"infinite in two directions", []float32{inf, 1}, []float32{-inf, 1}, false},
		{"large instead of infinite", []float32{math.MaxFloat32}, []float32{inf}, false},
		{"all zero is exact", []float32{1e-45}, []float32{0}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := func(values []float32) *output {
				return &output{dtype: tensorops.Float32, shape: []int{len(values)}, host: tensorops.HostBytes(values), factor: 1}
			}
			if err := out(test.want).compare(out(test.got), 1); (err == nil) != test.ok {
				t.Errorf("%g for %g: %v", test.got, test.want, err)
			}
		})
	}
}

func TestCompareSaysWhatIsWrong(t *testing.T) {
	out := func(values ...float32) *output {
		return &output{dtype: tensorops.Float32, shape: []int{2, 2}, host: tensorops.HostBytes(values), factor: 1}
	}
	err := out(1, 2, 3, 4).compare(out(1, 2.5, 2, 4), 1)
	const want = "2 of 4 elements of float32[2 2] are wrong; the worst, element 2, is 2 and the oracle " +
		"says 3: an error of 1, with values up to 4 4.77e-07 is allowed"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
