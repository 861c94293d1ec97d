package plan_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

var (
	gpt2  = stages.Config{Family: stages.GPT2, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, FFN: 16, Context: 16, Vocab: 256, Tie: true}
	llama = stages.Config{Family: stages.Llama, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 16, Context: 16, Vocab: 256, RopeTheta: 10000}
)

// sharing has a second layer that uses the keys and values of the first one.
var sharing = stages.Config{Family: stages.Gemma4, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 16, Context: 16, Vocab: 256,
	RopeTheta: 10000, LayerInput: 3, SharedKV: 1}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files are the tensors of a directory by their names; every element of the i-th parameter
// is i.
type files map[string]safetensors.Tensor

func (f files) set(name, dtype string, shape ...int) {
	bytes := map[string]int{"F32": 4, "I32": 4, "BF16": 2}[dtype]
	for _, n := range shape {
		bytes *= n
	}
	f[name] = safetensors.Tensor{Name: name, DType: dtype, Shape: shape, Data: make([]byte, bytes)}
}

// newModel is a model with its tensors.
func newModel(t testing.TB, c stages.Config) (*stages.Model, files) {
	t.Helper()
	m, err := stages.NewModel(c)
	must(t, err)
	f := make(files)
	for i, p := range m.Params {
		f[p.Name] = safetensors.F32(p.Name, p.Shape, slices.Repeat([]float32{float32(i)}, p.Len()))
	}
	return m, f
}

// directory writes what other programs publish; without a tokenizer if tok is nil.
func directory(t testing.TB, c stages.Config, f files, tok tokenizer.Tokenizer) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text, err := c.HF()
	must(t, err)
	var weights strings.Builder
	var tensors []safetensors.Tensor
	for _, name := range slices.Sorted(maps.Keys(f)) {
		tensors = append(tensors, f[name])
	}
	must(t, safetensors.Write(&weights, nil, tensors))
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(weights.String()), 0o644))
	if tok != nil {
		text, err := tokenizer.Marshal(tok)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o644))
	}
	return dir
}

func openDir(t testing.TB, dir string) *checkpoint.Checkpoint {
	t.Helper()
	ckpt, err := checkpoint.Open(dir)
	must(t, err)
	t.Cleanup(func() { must(t, ckpt.Close()) })
	return ckpt
}

// rename gives tensors other names.
func rename(f files, to func(name string) string) {
	for _, name := range slices.Collect(maps.Keys(f)) {
		tensor := f[name]
		delete(f, name)
		tensor.Name = to(name)
		f[tensor.Name] = tensor
	}
}

// TestWeights: every tensor of a directory is a weight of the model, or known to follow
// from its sizes, or refused by name; and what is read is what is there.
func TestWeights(t *testing.T) {
	short := func(f files) { rename(f, func(name string) string { return strings.TrimPrefix(name, "transformer.") }) }
	for _, tt := range []struct {
		name   string
		model  stages.Config
		change func(f files)
		parts  []string
		want   []string // none: they fit
	}{
		{"as a run writes them", gpt2, func(files) {}, nil, nil},
		{"a Llama", llama, func(files) {}, nil, nil},
		{"GPT-2's published names", gpt2, short, nil, nil},
		{"with buffers", gpt2, func(f files) {
			f.set("transformer.h.0.attn.bias", "F32", 1, 1, 16, 16)
			f.set("h.1.attn.masked_bias", "F32")
		}, nil, nil},
		{"a Llama with buffers", llama, func(f files) { f.set("model.layers.1.self_attn.rotary_emb.inv_freq", "F32", 2) }, nil, nil},
		{"keys of a layer that uses those of another one", sharing, func(f files) {
			f.set("model.layers.1.self_attn.k_proj.weight", "BF16", 4, 8)
			f.set("model.layers.1.self_attn.v_proj.weight", "BF16", 4, 8)
			f.set("model.layers.1.self_attn.k_norm.weight", "BF16", 4)
		}, nil, nil},
		{"queries without a layer", sharing, func(f files) { f.set("model.layers.2.self_attn.q_proj.weight", "BF16", 8, 8) }, nil,
			[]string{"does not use 1 of", `"model.layers.2.self_attn.q_proj.weight"`}},
		{"without the embedding of the layers' inputs", sharing, func(f files) { delete(f, "model.embed_tokens_per_layer.weight") }, nil,
			[]string{`tensor "model.embed_tokens_per_layer.weight" is missing`}},
		{"an embedding of other inputs", sharing, func(f files) { f.set("model.embed_tokens_per_layer.weight", "BF16", 256, 7) }, nil,
			[]string{`"model.embed_tokens_per_layer.weight" has shape [256 7], but the model needs [256 6]`}},
		{"another one's buffers", llama, func(f files) { f.set("h.0.attn.bias", "F32", 1) }, nil,
			[]string{"does not use 1 of the 22 tensors", `"h.0.attn.bias"`, "config.json"}},
		{"a copy of the tied head", gpt2, func(f files) {
			head := f["transformer.wte.weight"]
			head.Name = "lm_head.weight"
			f[head.Name] = head
		}, nil, nil},
		{"a tied head of its own", gpt2, func(f files) { f.set("lm_head.weight", "F32", 256, 8); f["lm_head.weight"].Data[5] = 1 }, nil,
			[]string{`"lm_head.weight" differs from "transformer.wte.weight"`, "tie_word_embeddings"}},
		{"a tied head of another shape", gpt2, func(f files) { f.set("lm_head.weight", "F32", 8, 256) }, nil,
			[]string{"lm_head.weight", "must be equal"}},
		{"two spellings", gpt2, func(f files) { f.set("wte.weight", "F32", 256, 8) }, nil,
			[]string{`"transformer.wte.weight" and "wte.weight" are two names of one tensor; remove one`}},
		{"one is missing", gpt2, func(f files) { delete(f, "transformer.h.1.ln_2.bias") }, nil,
			[]string{`tensor "transformer.h.1.ln_2.bias" is missing`}},
		{"another shape", gpt2, func(f files) { f.set("transformer.wpe.weight", "F32", 17, 8) }, nil,
			[]string{`model.safetensors: tensor "transformer.wpe.weight" has shape [17 8], but the model needs [16 8]`}},
		{"another type", gpt2, func(f files) { f.set("transformer.wpe.weight", "I32", 16, 8) }, nil,
			[]string{`"transformer.wpe.weight" has type I32; only F32, F16 and BF16 are supported`}},
		{"too many", gpt2, func(f files) {
			for i := range 7 {
				f.set(fmt.Sprintf("transformer.h.%d.x", i), "F32", 1)
			}
		}, nil, []string{"7 of the 35 tensors", `"transformer.h.4.x", …`}},
		{"no optimizer's state", gpt2, func(files) {}, []string{"m"}, []string{`tensor "m.transformer.wte.weight" is missing`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, f := newModel(t, tt.model)
			tt.change(f)
			ckpt := openDir(t, directory(t, tt.model, f, nil))
			err := plan.CheckWeights(ckpt, m, func(*stages.Param) []string { return tt.parts })
			if (err != nil) != (len(tt.want) > 0) || err != nil && !strings.HasPrefix(err.Error(), ckpt.Dir()) {
				t.Fatalf("error %v", err)
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q, want %q in it", err, text)
				}
			}
			if err != nil {
				return
			}
			read := plan.Weights(ckpt)
			for i, p := range m.Params {
				values := make([]float32, p.Len())
				must(t, read(p, "", values))
				if slices.Min(values) != float32(i) || slices.Max(values) != float32(i) {
					t.Errorf("%s is %v, want %d", p.Name, values, i)
				}
			}
			if err := read(m.Params[0], "m", make([]float32, m.Params[0].Len())); err == nil || !strings.Contains(err.Error(), `"m.`) {
				t.Errorf("an optimizer's state that is not there: %v", err)
			}
		})
	}
}

// TestReadModel: the sizes are those of config.json; a run's checkpoint has the context
// that the run trained at beside the model's own.
func TestReadModel(t *testing.T) {
	_, f := newModel(t, llama)
	dir := directory(t, llama, f, nil)
	m, err := plan.ReadModel(openDir(t, dir))
	if err != nil || m.Hidden != 8 || m.Context != 16 || m.Positions() != 16 {
		t.Errorf("%+v, %v", m, err)
	}
	hf, err := os.ReadFile(filepath.Join(dir, "config.json"))
	must(t, err)
	for _, tt := range []struct {
		name, stored string
		context      int // 0: an error
	}{
		{"a shorter context", "data.train = ['a.txt']\nmodel.context = 8\n", 8},
		{"no stored configuration", "", 16},
		{"one that is none", "colour = 'red'", 0},
	} {
		fsys, err := checkpoint.OpenFS(t.TempDir())
		must(t, err)
		store, err := checkpoint.OpenStore(fsys, ".")
		must(t, err)
		c := checkpoint.Content{Model: slices.Collect(maps.Values(f)), Files: map[string][]byte{"config.json": hf}}
		if tt.stored != "" {
			c.Files["config.toml"] = []byte(tt.stored)
		}
		saved, err := store.Save(t.Context(), c)
		must(t, errors.Join(err, fsys.Close()))
		m, err := plan.ReadModel(openDir(t, saved))
		if (err != nil) != (tt.context == 0) || err == nil && (m.Context != tt.context || m.Positions() != 16) {
			t.Errorf("%s: %+v, %v", tt.name, m, err)
		}
	}
}

// TestWeightsBySlices: a rank that shares its layers reads its part of each tensor, and no more.
func TestWeightsBySlices(t *testing.T) {
	for _, cfg := range []stages.Config{gpt2, llama} {
		m, f := newModel(t, cfg)
		for _, tensor := range f {
			for i := range len(tensor.Data) / 4 {
				binary.LittleEndian.PutUint32(tensor.Data[4*i:], math.Float32bits(float32(i)))
			}
		}
		read := plan.Weights(openDir(t, directory(t, cfg, f, nil)))
		split := 0
		for _, p := range m.Params {
			whole := make([]float32, p.Len())
			must(t, read(p, "", whole))
			for rank := range 2 {
				part := *p
				part.Slice = p.Split.Slice(p.Whole, rank, 2)
				part.Shape = part.Slice.Shape(p.Whole)
				got, want := make([]float32, part.Len()), make([]float32, part.Len())
				must(t, read(&part, "", got))
				must(t, part.Slice.Take(want, whole, p.Whole))
				if !slices.Equal(got, want) {
					t.Errorf("%s, rank %d: %v, want %v", p.Name, rank, got, want)
				}
				if part.Len() < p.Len() {
					split++
				}
				part.Whole = append(slices.Clone(p.Whole), 2)
				if err := read(&part, "", got); part.Slice != (stages.Slice{}) && (err == nil || !strings.Contains(err.Error(), "the model needs")) {
					t.Errorf("%s of another shape: %v", p.Name, err)
				}
			}
		}
		if split == 0 {
			t.Error("nothing is split")
		}
	}
}
