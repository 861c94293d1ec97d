package stages_test

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// familyVector is a model as transformers computes it: a line of
// testdata/families/vectors.jsonl, which vectors.py beside it writes.
type familyVector struct {
	Name            string
	Config          json.RawMessage
	Tokens, Targets []int32
	Loss            float64
	Logits          floats
	Grads           map[string]floats
	Losses          []float64 // of AdamW's steps
	After           floats    // logits after them
}

// floats are float32 in base64.
type floats []float32

func (f *floats) UnmarshalJSON(text []byte) error {
	var packed string
	if err := json.Unmarshal(text, &packed); err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(packed)
	for ; len(b) >= 4; b = b[4:] {
		*f = append(*f, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return err
}

// drawn are a parameter's values by vectors.py's formula.
func drawn(p *stages.Param, dst []float32) {
	scale, offset := 0.3, 0.0
	if len(p.Shape) == 1 && (strings.HasSuffix(p.Name, "weight") || p.Constant) {
		scale, offset = 0.25, 1
	}
	if strings.HasSuffix(p.Name, "per_layer_input_gate.weight") {
		scale = 0.05
	}
	for _, part := range p.StoredParts() {
		base := uint32(2166136261)
		for _, b := range []byte(part.Name) {
			base = (base ^ uint32(b)) * 16777619
		}
		part.Runs(part.First, part.First+part.Len, func(param, at, n, step int) {
			for i := range n {
				h := base ^ uint32(at+i*step)*0x9E3779B1
				h = (h ^ h>>16) * 0x7FEB352D
				h = (h ^ h>>15) * 0x846CA68B
				h ^= h >> 16
				dst[param+i] = float32(offset + scale*(float64(h%4097)-2048)/2048)
			}
		})
	}
}

// off is by how much numbers differ, of the largest.
func off(got []float64, want floats) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var worst, size float64
	for i, w := range want {
		worst, size = max(worst, math.Abs(got[i]-float64(w))), max(size, math.Abs(float64(w)))
	}
	return worst / size
}

// stored returns the numbers of the tensors of files, from those of parameters.
func stored[E float32 | float64](m *stages.Model, of map[string][]E) map[string][]E {
	tensors := make(map[string][]E)
	for _, p := range m.Params {
		if v, ok := of[p.Name]; ok {
			for _, part := range p.StoredParts() {
				if tensors[part.Name] == nil {
					n := 1
					for _, d := range part.Shape {
						n *= d
					}
					tensors[part.Name] = make([]E, n)
				}
				stages.Place(part, tensors[part.Name], v)
			}
		}
	}
	return tensors
}

// logitsOf feeds each sequence, its first half at once and then token by token.
func (w *whole) logitsOf(tokens []int32, length int) (all []float64) {
	w.t.Helper()
	for ; len(tokens) > 0; tokens = tokens[length:] {
		for n := 1; n <= length; n++ {
			// All prefixes up to half the sequence at once; the rest goes on from there.
			dec, err := stages.NewDecoder(w.stages[0])
			if err != nil {
				w.t.Fatal(err)
			}
			d, err := dec.Add(length)
			if err != nil {
				w.t.Fatal(err)
			}
			logits, err := d.Next(tokens[:min(n, length/2)])
			for at := length / 2; at < n && err == nil; at++ {
				logits, err = d.Next(tokens[at : at+1])
			}
			if err != nil {
				w.t.Fatal(err)
			}
			for _, v := range logits {
				all = append(all, float64(v))
			}
			d.Close()
		}
	}
	return all
}

// TestFamiliesAgree: a family computes what transformers does: the logits, the loss, every
// gradient, and 20 steps of AdamW.
func TestFamiliesAgree(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "families", "vectors.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	dev, seen := newDevice(t, 2), make(map[string]bool)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v familyVector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		t.Run(v.Name, func(t *testing.T) {
			c, err := stages.ParseHF(v.Config)
			if err != nil {
				t.Fatal(err)
			}
			seen[c.Family] = true
			agrees(t, dev, c, &v)
		})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range stages.LanguageFamilies() {
		if !seen[name] && name != stages.Example {
			t.Errorf("there is no model of the family %q", name)
		}
	}
}

func agrees(t *testing.T, dev tensorops.Device, c stages.Config, v *familyVector) {
	const sequences = 2
	positions := len(v.Tokens) / sequences
	w := newWhole(t, dev, c)
	for _, p := range w.model.Params {
		drawn(p, w.weights[p.Name])
	}
	w.load()
	// A decoder keeps keys as they were rotated when the sequence was short: see rotation. There the losses and gradients of the
	// whole sequence show the logits.
	grows := c.RopeScaling.Type == "longrope" && positions > c.RopeScaling.Original
	if d := off(w.logitsOf(v.Tokens, positions), v.Logits); d > 1e-4 && !grows {
		t.Errorf("logits are off by %.2g of the largest", d)
	}
	mbs := []stages.Microbatch{{Step: 1, Sequences: sequences, Positions: positions, Tokens: v.Tokens, Targets: v.Targets, Train: true}}
	count := float64(len(v.Targets))
	grads := stored(w.model, w.grads(mbs))
	if len(grads) != len(v.Grads) {
		t.Errorf("there are %d gradients, want %d", len(grads), len(v.Grads))
	}
	// Where all cancels out (a bias of keys without positions), rounding is left: it counts
	// beside the largest gradient of all.
	var largest float64
	for _, g := range v.Grads {
		for _, x := range g {
			largest = max(largest, math.Abs(float64(x)))
		}
	}
	for name, want := range v.Grads {
		got := grads[name]
		var worst, size float64
		for i := range got {
			worst = max(worst, math.Abs(got[i]/count-float64(want[i])))
			size = max(size, math.Abs(float64(want[i])))
		}
		if len(got) != len(want) || worst > 1e-4*max(size, 1e-3*largest) {
			t.Errorf("%s: the gradient of %d elements is off by %.2g of %.2g", name, len(got), worst, size)
		}
	}
	w.run(0, w.stages[0].ClearGrads)
	for i, want := range v.Losses {
		loss, _, u := w.passes(i+1, mbs, i%2 == 1)
		if i == 0 && math.Abs(loss-v.Loss) > 1e-4*v.Loss {
			t.Errorf("the loss is %.7g, want %.7g", loss, v.Loss)
		}
		if math.Abs(loss-want) > 1e-3*want {
			t.Errorf("step %d: the loss is %.7g, want %.7g", i+1, loss, want)
		}
		u.LR, u.GradScale = 3e-3, stages.LossScale(count)
		w.run(0, func(l *tensorops.List) { w.stages[0].Apply(l, u) })
	}
	if d := off(w.logitsOf(v.Tokens, positions), v.After); d > 1e-3 && !grows {
		t.Errorf("after %d steps the logits are off by %.2g of the largest", len(v.Losses), d)
	}
}

// experts are those of all layers, with weights that add up to 1.
func experts(count, perToken, width int) stages.ExpertConfig {
	return stages.ExpertConfig{Count: count, PerToken: perToken, Width: width, Renormalize: true}
}

// TestLoadsInTransformers writes a model of each family for transformers to load: `make
// check-hf`, with the Python that TROUPE_PYTHON names.
func TestLoadsInTransformers(t *testing.T) {
	python := os.Getenv("TROUPE_PYTHON")
	if python == "" {
		t.Skip("TROUPE_PYTHON names no Python with transformers")
	}
	dir, dev := t.TempDir(), newDevice(t, 2)
	plain := func(family string, change func(c *stages.Config)) stages.Config {
		c := stages.Config{Family: family, Layers: 2, Hidden: 16, Heads: 4, KVHeads: 2, FFN: 20, Context: 16, Vocab: 17, RopeTheta: 1000,
			NormEps: 1e-6}
		change(&c)
		return c
	}
	llama3 := stages.RopeScaling{Type: "llama3", Factor: 4, Low: 1, High: 4, Original: 12}
	for name, c := range map[string]stages.Config{
		"gpt2":  plain(stages.GPT2, func(c *stages.Config) { c.KVHeads, c.Tie = 4, true }),
		"llama": plain(stages.Llama, func(*stages.Config) {}),
		"llama-biases": plain(stages.Llama, func(c *stages.Config) {
			c.AttentionBias, c.MLPBias, c.RopeScaling, c.Tie = true, true, llama3,
				true
		}),
		"llama-linear": plain(stages.Llama, func(c *stages.Config) {
			c.HeadDim, c.RopeScaling = 6,
				stages.RopeScaling{Type: "linear", Factor: 2.5}
		}),
		"mixtral":        plain(stages.Mixtral, func(c *stages.Config) { c.Experts = experts(4, 2, c.FFN) }),
		"mixtral-window": plain(stages.Mixtral, func(c *stages.Config) { c.Window, c.Experts = 4, experts(3, 1, c.FFN) }),
		"qwen3_moe": plain(stages.Qwen3MoE, func(c *stages.Config) {
			c.HeadDim, c.Experts = 6, experts(5, 3, 10)
			c.Experts.Dense = []int{1}
		}),
		"qwen3_moe-scores": plain(stages.Qwen3MoE, func(c *stages.Config) {
			c.Tie, c.Experts = true, stages.ExpertConfig{Count: 3, PerToken: 2, Width: 8}
		}),
		"gpt_oss": plain(stages.GPTOSS, func(c *stages.Config) {
			c.HeadDim, c.AttentionBias, c.Window, c.Full, c.Experts = 6, true, 5, []int{1}, experts(5, 2, c.FFN)
		}),
		"gpt_oss-yarn": plain(stages.GPTOSS, func(c *stages.Config) {
			c.HeadDim, c.Experts = 8, experts(3, 1, c.FFN)
			c.Experts.GateLimit = 1
			c.RopeScaling = stages.RopeScaling{Type: "yarn", Factor: 4, Original: 4, BetaFast: 0.5, BetaSlow: 0.1, Fractional: true}
		}),
		"qwen2_moe": plain(stages.Qwen2MoE, func(c *stages.Config) {
			c.Experts = experts(5, 3, 10)
			c.Experts.Dense, c.Experts.SharedWidth, c.Experts.SharedGate = []int{1}, 14, true
		}),
		"deepseek_v3": plain(stages.DeepSeekV3, func(c *stages.Config) {
			c.KVHeads, c.Latent = 4, stages.LatentConfig{QRank: 9, KVRank: 7, Nope: 6, Rope: 4, Value: 5, Interleave: true}
			c.Experts = experts(6, 3, 10)
			c.Experts.Dense, c.Experts.SharedWidth = []int{0}, 20
			c.Experts.Router = stages.RouterConfig{Sigmoid: true, Bias: true, Groups: 3, TopGroups: 2, Scale: 2}
		}),
		"deepseek_v3-plain": plain(stages.DeepSeekV3, func(c *stages.Config) {
			c.KVHeads, c.Latent, c.Tie = 4, stages.LatentConfig{KVRank: 7, Nope: 6, Rope: 4, Value: 12}, true
			c.Experts = stages.ExpertConfig{Count: 3, PerToken: 2, Width: 10, SharedWidth: 10}
			c.Experts.Router = stages.RouterConfig{Sigmoid: true, Bias: true}
		}),
		"mistral":         plain(stages.Mistral, func(c *stages.Config) { c.HeadDim = 6 }),
		"mistral-window":  plain(stages.Mistral, func(c *stages.Config) { c.Window = 4 }),
		"qwen2":           plain(stages.Qwen2, func(c *stages.Config) { c.Tie = true }),
		"qwen2-windows":   plain(stages.Qwen2, func(c *stages.Config) { c.Window, c.Full = 3, []int{0} }),
		"smollm3":         plain(stages.SmolLM3, func(c *stages.Config) { c.Tie, c.NoRope = true, []int{1} }),
		"smollm3-windows": plain(stages.SmolLM3, func(c *stages.Config) { c.AttentionBias, c.Window, c.Full = true, 5, []int{0} }),
		"granite": plain(stages.Granite, func(c *stages.Config) {
			c.EmbeddingScale, c.ResidualScale, c.LogitDivisor, c.AttentionScale, c.Tie = 3, 0.4, 2, 0.7, true
		}),
		"olmo2":      plain(stages.OLMo2, func(c *stages.Config) { c.HeadDim, c.AttentionBias = 6, true }),
		"olmo3":      plain(stages.OLMo3, func(c *stages.Config) { c.Window, c.Full, c.WindowTheta = 5, []int{1}, 100 }),
		"olmo3-full": plain(stages.OLMo3, func(c *stages.Config) { c.RopeScaling = stages.RopeScaling{Type: "linear", Factor: 2} }),
		"gemma2": plain(stages.Gemma2, func(c *stages.Config) {
			c.HeadDim, c.Window, c.Full, c.AttentionScale, c.AttentionSoftCap, c.LogitSoftCap = 6, 5, []int{0}, 0.5, 2, 3
		}),
		"gemma4_text": plain(stages.Gemma4, func(c *stages.Config) {
			c.Window, c.Full, c.FullHeadDim, c.FullKVHeads, c.ValuesAreKeys, c.WindowTheta = 5, []int{1}, 6, 1, true, 100
			c.RopeScaling = stages.RopeScaling{Type: "proportional", Partial: 0.5}
		}),
		"gemma4_text-small": plain(stages.Gemma4, func(c *stages.Config) {
			c.Layers, c.Window, c.Full, c.FullHeadDim, c.WindowTheta = 4, 5, []int{1, 3}, 6, 100
			c.LayerInput, c.SharedKV, c.WideShared, c.Tie = 3, 2, true, true
		}),
		"gemma3_text": plain(stages.Gemma3, func(c *stages.Config) {
			c.Window, c.Full, c.WindowTheta, c.AttentionScale, c.LogitSoftCap, c.Tie = 5, []int{1}, 100, 0.25, 3, true
		}),
		"phi3": plain(stages.Phi3, func(c *stages.Config) { c.Tie, c.Window = true, 5 }),
		"phi3-longrope": plain(stages.Phi3, func(c *stages.Config) {
			c.RopeScaling = stages.RopeScaling{Type: "longrope", Factor: 2, Original: 12, Partial: 0.5, Short: []float64{1.25},
				Long: []float64{1.5}}
		}),
		"qwen3-yarn": plain(stages.Qwen3, func(c *stages.Config) {
			c.HeadDim, c.RopeScaling = 8, stages.RopeScaling{Type: "yarn", Factor: 4, Original: 4, BetaFast: 0.5, BetaSlow: 0.1}
		}),
		"llama-dynamic": plain(stages.Llama, func(c *stages.Config) {
			c.HeadDim, c.RopeScaling = 6, stages.RopeScaling{Type: "dynamic", Factor: 2.5, Original: c.Context}
		}),
		"qwen3": plain(stages.Qwen3, func(c *stages.Config) { c.HeadDim, c.Tie = 8, true }),
		"qwen3-windows": plain(stages.Qwen3, func(c *stages.Config) {
			c.HeadDim, c.AttentionBias, c.Window, c.Full = 6, true, 5,
				[]int{1}
		}),
	} {
		w := newWhole(t, dev, c)
		tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}
		writeModel(t, filepath.Join(dir, name), w, tokens)
	}
	out, err := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "families", "vectors.py"), "check", dir).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// writeModel writes a directory that transformers loads, and what the logits of tokens are.
func writeModel(t *testing.T, dir string, w *whole, tokens []int32) {
	t.Helper()
	text, err := w.model.Config.HF()
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Tensor
	for _, p := range w.model.Params {
		drawn(p, w.weights[p.Name])
	}
	numbers := stored(w.model, w.weights)
	for _, p := range w.model.Params {
		if !p.FirstStored() {
			continue
		}
		for _, part := range p.StoredParts() {
			tensors = append(tensors, safetensors.F32(part.Name, part.Shape, numbers[part.Name]))
		}
	}
	w.load()
	var file strings.Builder
	if err := safetensors.Write(&file, map[string]string{"format": "pt"}, tensors); err != nil {
		t.Fatal(err)
	}
	logits, err := json.Marshal(map[string]any{"tokens": tokens, "logits": w.logitsOf(tokens, len(tokens))})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"config.json": string(text), "model.safetensors": file.String(),
		"logits.json": string(logits)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
