package stages_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// passingModel has inputs of each layer, and layers of both kinds that use the keys and values of an earlier one: layers 4 and 5 those of
// layer 2, with a window, and layer 6 those of layer 3.
var passingModel = stages.Config{Family: stages.Gemma4, Layers: 7, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FullHeadDim: 14,
	FullKVHeads: 1, FFN: 30, Context: 10, Vocab: 19, Dropout: 0.1, Tie: true, RopeTheta: 1000, WindowTheta: 100, Window: 4,
	Full: []int{1, 3, 6}, LogitSoftCap: 3, RopeScaling: stages.RopeScaling{Type: "proportional", Partial: 0.5}, LayerInput: 5, SharedKV: 3,
	WideShared: true}

// TestEdgeWidth: an edge has the channels of the residual stream, of the inputs of the layers after it, and of the keys and values that
// they use.
func TestEdgeWidth(t *testing.T) {
	m := newModel(t, passingModel)
	const hidden, input, windowed, full = 24, 5, 2 * 20, 2 * 14
	for layer, want := range map[int]int{1: hidden + 7*input, 2: hidden + 6*input, 3: hidden + 5*input, 4: hidden + 4*input + windowed,
		5: hidden + 3*input + windowed + full, 6: hidden + 2*input + windowed + full, 7: hidden + input + full, 8: hidden, 9: hidden} {
		if got := m.EdgeWidth(layer); got != want {
			t.Errorf("the edge before layer %d has %d channels, want %d", layer, got, want)
		}
	}
	if got := newModel(t, families[1]).EdgeWidth(2); got != 24 {
		t.Errorf("an edge of llama has %d channels", got)
	}
}

// TestPassedChannelsChangeNoBit: wherever the model is cut, between the embedding and all layers, between a layer that keeps its keys and
// values and those that use them, or between two of these, no bit changes.
func TestPassedChannelsChangeNoBit(t *testing.T) {
	onlyShared, onlyInputs := passingModel, passingModel
	onlyShared.LayerInput, onlyShared.WideShared = 0, false
	onlyInputs.SharedKV, onlyInputs.WideShared, onlyInputs.MTPLayers, onlyInputs.MTPWeight = 0, false, 1, 0.3
	wide := stages.Options{Seed: 5, Optimizer: adamw}
	bf16 := stages.Options{Seed: 5, Optimizer: adamw, BF16: true, Residual: tensorops.BFloat16}
	mixed := bf16
	mixed.Residual = tensorops.Float32
	for name, c := range map[string]stages.Config{"both": passingModel, "shared keys": onlyShared, "inputs": onlyInputs} {
		for _, o := range []stages.Options{wide, bf16, mixed} {
			m := newModel(t, c)
			type result struct{ loss, norm float64 }
			train := func(cuts []int, split bool, recompute func(i int) bool) (rs []result) {
				ranks := make([]int, len(cuts)+1)
				for i := range ranks {
					ranks[i] = i
				}
				p := newPipeOn(t, newDevice(t, 2), m, cuts, ranks, o)
				for step := range 3 {
					mbs := microbatches(c, int64(step+1), 4, 2)
					for i := range mbs {
						mbs[i].Recompute = recompute(i)
					}
					loss, norm := p.step(step+1, mbs, split)
					rs = append(rs, result{loss, norm})
				}
				return rs
			}
			never, odd := func(int) bool { return false }, func(i int) bool { return i%2 == 1 }
			want := train(nil, false, never)
			if math.IsNaN(want[2].norm) || want[0].loss < 2.5 || want[0].loss > 3.5 {
				t.Fatalf("%s: %v", name, want)
			}
			var all []int
			for at := 1; at <= c.Layers+1; at++ {
				all = append(all, at)
				if got := train([]int{at}, at%2 == 0, never); !slices.Equal(got, want) {
					t.Errorf("%s, %+v: cut at %d: %v, want %v", name, o.Residual, at, got, want)
				}
			}
			if got := train(all, true, odd); !slices.Equal(got, want) {
				t.Errorf("%s, %+v: cut everywhere, with recomputation: %v, want %v", name, o.Residual, got, want)
			}
		}
	}
}

// TestSharedKeysInParts: a text that comes in parts, some longer than the window, has the logits that it has at once: layers that use the
// keys of a ring see those that the last positions replace.
func TestSharedKeysInParts(t *testing.T) {
	c := passingModel
	c.MaxPositions = 40
	w := newWhole(t, newDevice(t, 2), c)
	decoder, err := stages.NewDecoder(w.stages[0])
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, 30)
	for i := range tokens {
		tokens[i] = int32(i * 7 % c.Vocab)
	}
	whole := add(t, decoder)
	for _, parts := range [][]int{{3, 9, 1, 1, 6, 4, 6}, {1, 1, 1, 27}, {29, 1}, {5, 5, 5, 5, 5, 5}} {
		q, at := add(t, decoder), 0
		for _, n := range parts {
			got, err := q.Next(tokens[at : at+n])
			if err != nil {
				t.Fatal(err)
			}
			got = slices.Clone(got)
			at += n
			whole.Reset()
			want, err := whole.Next(tokens[:at])
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range want {
				if math.Abs(float64(v-got[i])) > 5e-5 {
					t.Fatalf("in parts of %d: logit %d after %d tokens is %g, at once %g", parts, i, at, got[i], v)
				}
			}
		}
		q.Close()
	}
}

// TestPassingRefused: what tensor and context groups cannot share is refused by name, and so are sizes that contradict each other.
func TestPassingRefused(t *testing.T) {
	m := newModel(t, passingModel)
	for _, err := range []error{m.CheckTensor(2), m.CheckContext(5)} {
		if !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), "inputs of each layer and layers that share keys and values") {
			t.Errorf("a group of 2: %v", err)
		}
	}
	for _, c := range []struct {
		want   string
		change func(c *stages.Config)
	}{
		{"number of channels of each layer's own input is -1", func(c *stages.Config) { c.LayerInput = -1 }},
		{"number of layers that share keys and values is -1", func(c *stages.Config) { c.SharedKV = -1 }},
		{"7 layers have inputs of 1048576 channels", func(c *stages.Config) { c.LayerInput = stages.MaxHidden }},
		{"0 layers have inputs", func(c *stages.Config) {
			c.Layers, c.Full, c.Window, c.SharedKV, c.WideShared, c.WindowTheta = 0, nil, 0, 0, false, 0
		}},
		{"7 of 7 layers share", func(c *stages.Config) { c.SharedKV = 7 }},
		{"none of the 1 layers before them", func(c *stages.Config) { c.SharedKV = 6 }},
		{"there are 0 such layers", func(c *stages.Config) { c.SharedKV = 0 }},
		{"twice the ffn", func(c *stages.Config) { c.FFN = stages.MaxFFN }},
		{"llama has no ", func(c *stages.Config) {
			*c = families[1]
			c.SharedKV = 1
		}},
	} {
		cfg := passingModel
		c.change(&cfg)
		if _, err := stages.NewModel(cfg); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one about %q", err, c.want)
		}
	}
}

// TestPassingParameters: layers that use the keys and values of an earlier one have no weights for them, and wider feed-forward parts.
func TestPassingParameters(t *testing.T) {
	shapes := make(map[string]string)
	for _, p := range newModel(t, passingModel).Params {
		shapes[p.Name] = fmt.Sprint(p.Shape)
	}
	for name, want := range map[string]string{
		"model.embed_tokens_per_layer.weight": "[19 35]", "model.per_layer_model_projection.weight": "[35 24]",
		"model.per_layer_projection_norm.weight": "[5]", "model.layers.0.per_layer_input_gate.weight": "[5 24]",
		"model.layers.6.per_layer_projection.weight": "[24 5]", "model.layers.6.post_per_layer_input_norm.weight": "[24]",
		"model.layers.3.self_attn.k_proj.weight": "[14 24]", "model.layers.4.self_attn.k_proj.weight": "",
		"model.layers.4.self_attn.v_proj.weight": "", "model.layers.4.self_attn.k_norm.weight": "",
		"model.layers.4.self_attn.q_norm.weight": "[10]", "model.layers.3.mlp.up_proj.weight": "[30 24]",
		"model.layers.4.mlp.up_proj.weight": "[60 24]", "model.layers.6.mlp.down_proj.weight": "[24 60]",
	} {
		if shapes[name] != want {
			t.Errorf("%s has the shape %q, want %q", name, shapes[name], want)
		}
	}
}

// TestLargePassing: a step of a model of E2B's sizes is recorded: its second embedding has more numbers than the largest dimension.
func TestLargePassing(t *testing.T) {
	c, err := stages.ParseHF([]byte(gemma4Small(5, 35)))
	if err != nil {
		t.Fatal(err)
	}
	c.Context = 32
	m := newModel(t, c)
	for _, zero := range []int{0, 1, 2, 3} {
		for _, recompute := range []bool{false, true} {
			dry := tensorops.NewDryStream()
			o := stages.Options{Optimizer: adamw, StepTokens: 64}
			if zero > 0 {
				o.Data = stages.DataParallel{Group: tensorops.DryGroup{Members: 2}, Zero: zero}
			}
			// The cuts are between the embedding and the layers, between the two layers that keep their keys, and after these.
			var specs []stages.ChunkSpec
			for i, cut := range []int{1, 15, 16, 37} {
				specs = append(specs, stages.ChunkSpec{Chunk: i, Last: cut})
				if i > 0 {
					specs[i].First = specs[i-1].Last
				}
			}
			s, err := stages.NewStage(m, dry, specs, o)
			if err != nil {
				t.Fatal(err)
			}
			mb := microbatches(c, 1, 2, 2)[0]
			mb.Recompute, mb.Of = recompute, 1
			l := dry.NewList()
			var x tensorops.Tensor
			for i := range specs {
				x = stages.Only(s.Forward(l, i, &mb, x))
			}
			for i := len(specs) - 1; i >= 0; i-- {
				x = stages.Only(s.InputGrad(l, i, mb.Index, x))
			}
			for i := len(specs) - 1; i >= 0; i-- {
				s.WeightGrad(l, i, mb.Index)
			}
			s.GradNorms(l)
			s.Apply(l, stages.Update{Count: 1, LR: 1e-3, GradScale: 1})
			if err := tensorops.Run(dry, l); err != nil {
				t.Errorf("zero %d: %v", zero, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
