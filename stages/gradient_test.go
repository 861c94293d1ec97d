package stages_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// gradientModels are tiny, so that every weight can be moved by hand.
var gradientModels = []stages.Config{
	{Family: stages.GPT2, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, FFN: 12, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true},
	{Family: stages.GPT2, Layers: 1, Hidden: 6, Heads: 3, KVHeads: 3, FFN: 7, Context: 4, Vocab: 5},
	{Family: stages.Llama, Layers: 2, Hidden: 8, Heads: 4, KVHeads: 2, FFN: 10, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true,
		RopeTheta: 100},
	{Family: stages.Llama, Layers: 1, Hidden: 12, Heads: 2, KVHeads: 1, FFN: 9, Context: 4, Vocab: 5, RopeTheta: 10000},
	{Family: stages.GPT2, Layers: 1, Hidden: 6, Heads: 3, KVHeads: 3, FFN: 7, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true, MTPLayers: 2,
		MTPWeight: 0.7},
	{Family: stages.Llama, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100, MTPLayers: 1,
		MTPWeight: 0.3},
	{Family: stages.Mistral, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FFN: 9, Context: 6, Vocab: 7, RopeTheta: 100,
		Window: 2},
	{Family: stages.Qwen2, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true,
		RopeTheta: 100,
		Window:    3, Full: []int{0}},
	{Family: stages.Qwen3, Layers: 2, Hidden: 6, Heads: 2, KVHeads: 1, HeadDim: 4, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100,
		AttentionBias: true, MTPLayers: 1, MTPWeight: 0.3},
	{Family: stages.Qwen3, Layers: 1, Hidden: 7, Heads: 2, KVHeads: 2, HeadDim: 4, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2,
		RopeTheta: 100,
		Window:    2},
	{Family: stages.Llama, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100, AttentionBias: true,
		MLPBias: true, RopeScaling: stages.RopeScaling{Type: "linear", Factor: 3}},
	{Family: stages.Llama, Layers: 1, Hidden: 16, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100,
		RopeScaling: stages.RopeScaling{Type: "llama3", Factor: 8, Low: 1, High: 4, Original: 16}},
	{Family: stages.SmolLM3, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, Tie: true, RopeTheta: 100,
		MLPBias: true, NoRope: []int{0}, Window: 3, Full: []int{1}},
	{Family: stages.OLMo2, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, RopeTheta: 100,
		AttentionBias: true, MTPLayers: 1, MTPWeight: 0.3},
	{Family: stages.OLMo3, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, HeadDim: 6, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100,
		RopeScaling: stages.RopeScaling{Type: "linear", Factor: 3}, WindowTheta: 50, Window: 3, Full: []int{1}},
	{Family: stages.Granite, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true,
		RopeTheta:      100,
		EmbeddingScale: 3, ResidualScale: 0.4, LogitDivisor: 2, AttentionScale: 0.7, MTPLayers: 1, MTPWeight: 0.3},
	{Family: stages.Example, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, RopeTheta: 100,
		AttentionBias: true, NoRope: []int{1}, WindowTheta: 50, Window: 3, Full: []int{1}, ResidualScale: 0.4, AttentionScale: 0.7},
	{Family: stages.Phi3, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, RopeTheta: 100,
		Window: 3},
	{Family: stages.Phi3, Layers: 1, Hidden: 16, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, RopeTheta: 100,
		RopeScaling: stages.RopeScaling{Type: "longrope", Factor: 4, Original: 8, Partial: 0.5, Short: []float64{1, 2},
			Long: []float64{1.5, 3}}},
	{Family: stages.Gemma2, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true,
		RopeTheta: 100, Window: 2, Full: []int{1}, AttentionScale: 0.25, AttentionSoftCap: 1.5, LogitSoftCap: 2.5},
	{Family: stages.Gemma3, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100, WindowTheta: 20,
		AttentionBias: true, Window: 3, Full: []int{1}, LogitSoftCap: 2.5, MTPLayers: 1, MTPWeight: 0.3},
	{Family: stages.Qwen35, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100,
		RopeScaling: stages.RopeScaling{Partial: 0.7}, Delta: stages.DeltaConfig{Layers: []int{0}, KeyHeads: 1, ValueHeads: 2, KeyWidth: 3,
			ValueWidth: 2, Taps: 3}},
	{Family: stages.Gemma4, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, HeadDim: 6, FullHeadDim: 8, FullKVHeads: 1, ValuesAreKeys: true,
		FFN:     9,
		Context: 4, Vocab: 11, Dropout: 0.2, RopeTheta: 100, WindowTheta: 20, Window: 3, Full: []int{1}, LogitSoftCap: 2.5,
		RopeScaling: stages.RopeScaling{Type: "proportional", Partial: 0.5}},
	{Family: stages.Gemma4, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100, AttentionBias: true},
	{Family: stages.Qwen3MoE, Layers: 3, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2,
		RopeTheta: 100, AttentionBias: true, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 5, Dense: []int{1}}},
	{Family: stages.Mixtral, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 6, Context: 5, Vocab: 7, RopeTheta: 100, Window: 3,
		Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 6, Renormalize: true}},
	{Family: stages.GPTOSS, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FFN: 6, Context: 5, Vocab: 7, Dropout: 0.2,
		RopeTheta: 100, AttentionBias: true, Window: 3, Full: []int{1},
		Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 6, Renormalize: true, GateAlpha: 1.3}},
	{Family: stages.GPTOSS, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FFN: 6, Context: 5, Vocab: 7, RopeTheta: 100,
		Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 6, Renormalize: true},
		Adapter: &stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{"q_proj", "experts.gate_up_proj", "down_proj"}}},
	{Family: stages.Qwen2MoE, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, RopeTheta: 100,
		Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 5, Dense: []int{0}, SharedWidth: 7, SharedGate: true}},
	{Family: stages.DeepSeekV3, Layers: 2, Hidden: 7, Heads: 2, KVHeads: 2, FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, RopeTheta: 100,
		AttentionBias: true, Latent: stages.LatentConfig{QRank: 5, KVRank: 4, Nope: 3, Rope: 4, Value: 5, Interleave: true},
		Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 5, Dense: []int{0}, Renormalize: true, SharedWidth: 10,
			Balance: stages.BalanceConfig{Jitter: 0.2}, Router: stages.RouterConfig{Sigmoid: true, Bias: true, Groups: 2, TopGroups: 1,
				Scale: 1.5}},
		MTPLayers: 1, MTPWeight: 0.3},
	{Family: stages.DeepSeekV3, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 2, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100,
		Latent: stages.LatentConfig{KVRank: 4, Nope: 3, Rope: 2, Value: 7}, RopeScaling: stages.RopeScaling{Type: "yarn", Factor: 4,
			Original: 8,
			MScale:   0.8, MScaleAllDim: 1.2}, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 5, SharedWidth: 5,
			Router: stages.RouterConfig{Sigmoid: true, Bias: true}}},
	{Family: stages.GPT2, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, FFN: 12, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true,
		Adapter: &stages.Adapter{Rank: 2, Alpha: 4, Dropout: 0.3, Targets: []string{"c_attn", "mlp.c_proj", "lm_head"},
			Save: []string{"wpe"}}},
	{Family: stages.Llama, Layers: 2, Hidden: 8, Heads: 4, KVHeads: 2, FFN: 10, Context: 5, Vocab: 7, RopeTheta: 100, MLPBias: true,
		Adapter: &stages.Adapter{Rank: 3, Alpha: 1, RSLoRA: true, Targets: []string{stages.AllLinear}, Save: []string{"lm_head", "norm"},
			RankPattern: map[string]int{"layers.1.*.q_proj": 1}, AlphaPattern: map[string]float64{"up_proj": 7}}},
	{Family: stages.Llama, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100, MTPLayers: 1,
		MTPWeight: 0.3, Adapter: &stages.Adapter{Rank: 2, Alpha: 4, Dropout: 0.3, Targets: []string{`.*_proj|lm_head`}}},
	{Family: stages.Llama, Layers: 0, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 6, Vocab: 7, RopeTheta: 100, Tie: true,
		MTPLayers: 3,
		MTPWeight: 2},
	{Family: stages.Gemma4, Layers: 4, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FullHeadDim: 8, FullKVHeads: 2, ValuesAreKeys: true,
		FFN: 9, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true, RopeTheta: 100, WindowTheta: 50, Window: 3, Full: []int{1, 3},
		LogitSoftCap: 3, RopeScaling: stages.RopeScaling{Type: "proportional", Partial: 0.5}, LayerInput: 3, SharedKV: 2, WideShared: true},
	{Family: stages.Gemma4, Layers: 3, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100, LayerInput: 4,
		SharedKV: 1, MTPLayers: 1, MTPWeight: 0.3, AttentionBias: true},
	{Family: stages.Gemma4, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100, LayerInput: 6,
		SharedKV: 1, Adapter: &stages.Adapter{Rank: 2, Alpha: 4, Dropout: 0.3, Targets: []string{stages.AllLinear},
			Save: []string{"per_layer_projection_norm"}}},
}

// whole is a model in one chunk on a device, with its weights under the test's
// control.
type whole struct {
	pipe
	weights map[string][]float32
}

func newWhole(t *testing.T, dev tensorops.Device, c stages.Config) *whole {
	return newWholeWith(t, dev, c, stages.Options{Seed: 5, Optimizer: adamw, Pack: true})
}

func newWholeWith(t *testing.T, dev tensorops.Device, c stages.Config, o stages.Options) *whole {
	m := newModel(t, c)
	w := &whole{pipe: *newPipeOn(t, dev, m, nil, []int{0}, o), weights: map[string][]float32{}}
	draw := stages.InitWeights(5)
	for _, p := range m.Params {
		v := make([]float32, p.Len())
		if err := draw(p, "", v); err != nil {
			t.Fatal(err)
		}
		// Larger than an initial model's, so that no gradient is nearly zero.
		factor := float32(4)
		if strings.Contains(p.Name, "_norm") || strings.HasSuffix(p.Name, stages.AdapterMagnitude) || p.Constant {
			factor = 1 // of heads: scores would be too large to compare their exponentials
		}
		if c.LayerInput > 0 && !p.Constant { // else norms after small numbers, and sharp attention, would magnify the least difference
			switch factor = 12; {
			case strings.HasSuffix(p.Name, "q_norm.weight"):
				factor = 0.3
			case strings.Contains(p.Name, "norm") || p.Adapter:
				factor = 1
			case strings.HasSuffix(p.Name, "per_layer_input_gate.weight"):
				factor = 3
			case strings.HasSuffix(p.Name, "per_layer_model_projection.weight"):
				factor = 40
			case strings.HasSuffix(p.Name, "per_layer_projection.weight"):
				factor = 400
			}
		}
		for i := range v {
			v[i] = v[i]*factor + 0.05*float32(math.Sin(float64(i)))
		}
		w.weights[p.Name] = v
	}
	w.load()
	return w
}

func (w *whole) load() {
	src := func(p *stages.Param, _ string, dst []float32) error { copy(dst, w.weights[p.Name]); return nil }
	if err := w.stages[0].Load(src, false); err != nil {
		w.t.Fatal(err)
	}
}

// loss sums the losses of microbatches; without a backward they are dropped.
func (w *whole) loss(mbs []stages.Microbatch) (sum float64) {
	for i := range mbs {
		w.run(0, func(l *tensorops.List) { w.stages[0].Forward(l, 0, &mbs[i], tensorops.Tensor{}) })
		sum += w.stages[0].Objective(0, mbs[i].Index)
		w.run(0, func(l *tensorops.List) { w.stages[0].Backward(l, 0, mbs[i].Index, tensorops.Tensor{}) })
	}
	return sum
}

// grads returns the gradient of every parameter, a tied weight's uses added.
func (w *whole) grads(mbs []stages.Microbatch) map[string][]float64 {
	w.run(0, w.stages[0].ClearGrads)
	w.loss(mbs)
	var saved []stages.Saved
	w.run(0, func(l *tensorops.List) { saved = w.stages[0].Grads(l) })
	out := map[string][]float64{}
	for _, s := range saved {
		if out[s.Name] == nil {
			out[s.Name] = make([]float64, len(s.Data))
		}
		for i, v := range s.Data {
			out[s.Name][i] += float64(v)
		}
	}
	return out
}

// The whole model's gradient, with dropout and masked targets, against central
// differences in float64.
func TestGradientIsTheSlope(t *testing.T) {
	if raceDetector {
		t.Skip("it computes in one goroutine, and takes the race detector half a minute")
	}
	for i, c := range gradientModels {
		t.Run(fmt.Sprintf("%s %d", c.Family, i), func(t *testing.T) {
			dev := ref.New()
			t.Cleanup(dev.Close)
			w := newWhole(t, dev, c)
			mbs := microbatches(c, 3, 4, 2)
			grads, r := w.grads(mbs), rand.New(rand.NewPCG(1, 2))
			for _, name := range slices.Sorted(maps.Keys(grads)) {
				g := grads[name]
				var scale float64
				for _, v := range g {
					scale = math.Max(scale, math.Abs(v))
				}
				if scale == 0 {
					t.Errorf("%s: the gradient is zero", name)
				}
				one, middle, all := make([]float64, len(g)), make([]float64, len(g)), make([]float64, len(g))
				one[0], middle[len(g)/2] = 1, 1
				for j := range all { // of length 1, so that every element counts
					all[j] = float64(1-2*r.IntN(2)) / math.Sqrt(float64(len(g)))
				}
				for _, direction := range [][]float64{one, middle, all} {
					// Richardson's extrapolation of two central differences: the
					// error falls with h⁴.
					coarse, fine := w.slope(name, direction, 1.0/4096, g, mbs), w.slope(name, direction, 1.0/8192, g, mbs)
					if off := (4*fine - coarse) / 3; math.Abs(off) > 1e-6*scale {
						t.Errorf("%s: along %.3g…, the slope is %.3g away from the gradient's, whose largest element is %.3g", name,
							direction[:min(4, len(g))], off, scale)
					}
				}
			}
		})
	}
}

// slope is the central difference of the loss along a direction, less that which the gradient g predicts. A weight's real step counts,
// which float32 rounds.
func (w *whole) slope(name string, direction []float64, h float64, g []float64, mbs []stages.Microbatch) float64 {
	v := w.weights[name]
	at := slices.Clone(v)
	defer func() { copy(v, at); w.load() }()
	move := func(by float64) (loss, predicted float64) {
		for j := range v {
			v[j] = float32(float64(at[j]) + by*direction[j])
			predicted += g[j] * (float64(v[j]) - float64(at[j]))
		}
		w.load()
		return w.loss(mbs), predicted
	}
	plus, up := move(h)
	minus, down := move(-h)
	return (plus - minus - (up - down)) / (2 * h)
}

// The CPU device's gradients against the float64 oracle's.
func TestGradientMatchesOracle(t *testing.T) {
	for i, c := range append(gradientModels, families...) {
		oracle := ref.New()
		t.Cleanup(oracle.Close)
		mbs := microbatches(c, 3, 4, 2)
		want := newWhole(t, oracle, c).grads(mbs)
		got := newWhole(t, newDevice(t, 2), c).grads(mbs)
		for name, g := range got {
			var scale, worst float64
			for j := range g {
				scale = math.Max(scale, math.Abs(want[name][j]))
				worst = math.Max(worst, math.Abs(g[j]-want[name][j]))
			}
			if worst > 2e-5*scale {
				t.Errorf("%s %d, %s: off by %.3g of %.3g", c.Family, i, name, worst, scale)
			}
		}
	}
}

// Feeding a sequence token by token gives the logits of feeding it at once.
func TestDecoderCache(t *testing.T) {
	for _, c := range families {
		s := newDevice(t, 2).NewStream("decode")
		m := newModel(t, c)
		st, err := stages.NewStage(m, s, []stages.ChunkSpec{{First: 0, Last: len(m.Symbols())}}, stages.Options{Inference: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Load(stages.InitWeights(3), false); err != nil {
			t.Fatal(err)
		}
		decoder, err := stages.NewDecoder(st)
		if err != nil {
			t.Fatal(err)
		}
		dec, err := decoder.Add(1000)
		if err != nil {
			t.Fatal(err)
		}
		tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6}
		var byOne []float32
		for _, id := range tokens {
			if byOne, err = dec.Next([]int32{id}); err != nil {
				t.Fatal(err)
			}
		}
		byOne = append([]float32{}, byOne...)
		dec.Reset()
		atOnce, err := dec.Next(tokens)
		atOnce = slices.Clone(atOnce) // the decoder writes the next ones over them
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range atOnce {
			if math.Abs(float64(v-byOne[i])) > 1e-5 {
				t.Errorf("%s: logit %d is %g at once, %g by one", c.Family, i, v, byOne[i])
			}
		}
		if _, err := dec.Next(make([]int32, c.Context)); err == nil {
			t.Errorf("%s: a sequence longer than the context was accepted", c.Family)
		}
		small, err := decoder.Add(len(tokens))
		if err != nil {
			t.Fatal(err)
		}
		same, err := small.Next(tokens)
		if err != nil || !slices.Equal(same, atOnce) {
			t.Errorf("%s: a cache without room to spare gives %v, want %v, %v", c.Family, same, atOnce, err)
		}
		if _, err := small.Next(tokens[:1]); !errors.Is(err, stages.ErrInput) {
			t.Errorf("%s: a token beyond the cache: %v", c.Family, err)
		}
	}
}
