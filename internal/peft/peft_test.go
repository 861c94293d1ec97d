package peft_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// published is the adapter_config.json of release 0.21.2, with what LoraConfig says by default.
const published = `{"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
"base_model_name_or_path": "some/base", "bias": "none", "corda_config": null, "ensure_weight_tying": false, "eva_config": null,
"exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "kasa_config": null,
"layer_replication": null, "layers_pattern": null, "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 8, "lora_bias": false,
"lora_dropout": 0.0, "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
"monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 2, "rank_pattern": {},
"revision": null, "target_modules": ["q_proj", "v_proj"], "target_parameters": null, "task_type": "CAUSAL_LM",
"trainable_token_indices": null, "use_bdlora": null, "use_dora": false, "use_qalora": false, "use_rslora": false, "velora_config": null}`

func small(family string) stages.Config {
	c := stages.Config{Family: family, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 12, Context: 16, Vocab: 11, RopeTheta: 10000,
		Tie: family == "qwen2"}
	if family == stages.GPT2 {
		c.KVHeads, c.RopeTheta, c.Tie = 2, 0, true
	}
	if stages.HasExperts(family) {
		c.Experts = stages.ExpertConfig{Count: 3, PerToken: 2, Width: 12, Renormalize: true}
	}
	return c
}

func modelOf(t testing.TB, c stages.Config, a *stages.Adapter) *stages.Model {
	t.Helper()
	c.Adapter = a
	m, err := stages.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// numbers are different in each parameter.
func numbers(p *stages.Param) []float32 {
	n, seed := 1, float64(p.Index+1)
	for _, d := range p.Whole {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.Sin(seed*37 + float64(i)*1.7))
	}
	return v
}

func valuesOf(p *stages.Param) ([]float32, error) { return numbers(p), nil }

// base is the source of a base whose weights are 0.5.
func base(_ *stages.Param, _ string, dst []float32) error {
	for i := range dst {
		dst[i] = 0.5
	}
	return nil
}

// TestRoundTrip: what Write writes is read back: the same adapter, and the same numbers.
func TestRoundTrip(t *testing.T) {
	for name, c := range map[string]struct {
		family string
		a      stages.Adapter
	}{
		"gpt2": {"gpt2", stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{"c_attn", "mlp.c_proj"}}},
		"llama": {"llama", stages.Adapter{Rank: 3, Alpha: 16, Dropout: 0.125, Targets: []string{stages.AllLinear},
			Save: []string{"lm_head", "norm"}}},
		"patterns": {"llama", stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{"q_proj", "layers.1.mlp.down_proj"}, RSLoRA: true,
			RankPattern: map[string]int{"0.self_attn.q_proj": 5}, AlphaPattern: map[string]float64{"down_proj": 3.5}}},
		"dora": {"qwen2", stages.Adapter{Rank: 2, Alpha: 4, DoRA: true, Targets: []string{"v_proj", "o_proj"},
			Save: []string{"embed_tokens"}}},
		"fused": {"phi3", stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{"q_proj", "k_proj", "v_proj", "up_proj", "gate_proj"}}},
		"unequal": {"phi3", stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{"q_proj", "v_proj", "up_proj"},
			RankPattern: map[string]int{"v_proj": 3}, AlphaPattern: map[string]float64{"v_proj": 6}}},
		"experts": {"gpt_oss", stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{"q_proj", "gate_up_proj", "experts.down_proj"}}},
		"experts alone": {"qwen3_moe", stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{"gate_proj", "up_proj"},
			RankPattern: map[string]int{"up_proj": 2}, AlphaPattern: map[string]float64{"up_proj": 4}}},
		"experts of a layer": {"mixtral", stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{"o_proj", `.*layers\.1\..*\.w2`}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := modelOf(t, small(c.family), &c.a)
			dir := filepath.Join(t.TempDir(), "adapter")
			if err := peft.Write(t.Context(), dir, peft.Output{Model: m, Base: "some/base", Values: valuesOf,
				Metadata: map[string]string{"k": "v"}, Files: map[string][]byte{"more.json": []byte("{}")}}); err != nil {
				t.Fatal(err)
			}
			d, err := peft.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			if d.Base() != "some/base" || d.Metadata()["k"] != "v" {
				t.Errorf("base %q, metadata %v", d.Base(), d.Metadata())
			}
			got, err := d.Adapter(modelOf(t, small(c.family), nil))
			if err != nil {
				t.Fatal(err)
			}
			again := modelOf(t, small(c.family), got)
			if len(again.Params) != len(m.Params) {
				t.Fatalf("%d parameters instead of %d: %+v", len(again.Params), len(m.Params), got)
			}
			if a, b := fmt.Sprint(sizes(again)), fmt.Sprint(sizes(m)); a != b {
				t.Errorf("adapters\n%s\ninstead of\n%s", a, b)
			}
			load, err := d.Weights(again, base)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range again.Params {
				if p.Name != m.Params[i].Name || p.Frozen != m.Params[i].Frozen {
					t.Fatalf("%s instead of %s", p.Name, m.Params[i].Name)
				}
				want, dst := numbers(p), make([]float32, p.Len())
				if p.Frozen {
					_ = base(p, "", want)
				}
				if err := load(p, "", dst); err != nil || !slices.Equal(dst, want) {
					t.Errorf("%s: %v instead of %v: %v", p.Name, dst, want, err)
				}
			}
			if err := peft.Write(t.Context(), dir, peft.Output{Model: m, Values: valuesOf}); !errors.Is(err, os.ErrExist) {
				t.Errorf("an existing directory was replaced: %v", err)
			}
		})
	}
}

// sizes are those of all adapters of a model.
func sizes(m *stages.Model) (list []string) {
	for _, l := range m.Linears() {
		if l.Rank > 0 {
			list = append(list, fmt.Sprintf("%s r %d alpha %.6g s %.6g", l.Module, l.Rank, l.Alpha, l.Scale))
		}
	}
	for _, l := range m.ExpertLayers() {
		if l.Rank > 0 {
			list = append(list, fmt.Sprintf("%s r %d alpha %.6g s %.6g", l.Module, l.Rank, l.Alpha, l.Scale))
		}
	}
	return list
}

// TestNames: the tensors have PEFT's names and shapes, and the modules are selected by the fewest names.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		family, targets string
		adapter         stages.Adapter
		tensors         map[string][]int
	}{
		{"gpt2", `["c_attn"]`, stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{"c_attn"}}, map[string][]int{
			"base_model.model.transformer.h.0.attn.c_attn.lora_A.weight": {3, 8},
			"base_model.model.transformer.h.0.attn.c_attn.lora_B.weight": {24, 3},
			"base_model.model.transformer.h.1.attn.c_attn.lora_A.weight": {3, 8},
			"base_model.model.transformer.h.1.attn.c_attn.lora_B.weight": {24, 3}}},
		{"gpt2", `["transformer.h.0.mlp.c_proj"]`, stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{"h.0.mlp.c_proj"}}, map[string][]int{
			"base_model.model.transformer.h.0.mlp.c_proj.lora_A.weight": {3, 12},
			"base_model.model.transformer.h.0.mlp.c_proj.lora_B.weight": {8, 3}}},
		{"phi3", `["qkv_proj"]`, stages.Adapter{Rank: 2, Alpha: 2, Targets: []string{`.*\.1\.self_attn\.[qkv]_proj`,
			`.*\.0\.self_attn\.[kv]_proj`}}, map[string][]int{
			"base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight": {4, 8},
			"base_model.model.model.layers.0.self_attn.qkv_proj.lora_B.weight": {16, 4},
			"base_model.model.model.layers.1.self_attn.qkv_proj.lora_A.weight": {6, 8},
			"base_model.model.model.layers.1.self_attn.qkv_proj.lora_B.weight": {16, 6}}},
	} {
		dir := filepath.Join(t.TempDir(), "adapter")
		if err := peft.Write(t.Context(), dir, peft.Output{Model: modelOf(t, small(c.family), &c.adapter), Values: valuesOf}); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Open(filepath.Join(dir, peft.WeightsFile))
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string][]int)
		for _, name := range f.Names() {
			info, _ := f.Info(name)
			got[name] = info.Shape
		}
		if !reflect.DeepEqual(got, c.tensors) {
			t.Errorf("%s: %v instead of %v", c.family, got, c.tensors)
		}
		var config struct {
			Targets json.RawMessage `json:"target_modules"`
		}
		if err := json.Unmarshal(read(t, filepath.Join(dir, peft.ConfigFile)), &config); err != nil ||
			strings.Join(strings.Fields(string(config.Targets)), "") != c.targets {
			t.Errorf("%s: targets %s instead of %s: %v", c.family, config.Targets, c.targets, err)
		}
		_ = f.Close()
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// directory writes a directory of tensors.
func directory(t testing.TB, config string, tensors map[string][]int) string {
	t.Helper()
	var list []safetensors.Tensor
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		n := 1
		for _, d := range tensors[name] {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(i%5) - 1.5
		}
		list = append(list, safetensors.F32(name, tensors[name], v))
	}
	var file strings.Builder
	if err := safetensors.Write(&file, nil, list); err != nil {
		t.Fatal(err)
	}
	return files(t, config, file.String())
}

func files(t testing.TB, config, weights string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{peft.ConfigFile: config, peft.WeightsFile: weights} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// llama are the tensors of published for a small Llama.
func llama() map[string][]int {
	all := make(map[string][]int)
	for i := range 2 {
		at := fmt.Sprintf("base_model.model.model.layers.%d.self_attn.", i)
		all[at+"q_proj.lora_A.weight"], all[at+"q_proj.lora_B.weight"] = []int{2, 8}, []int{8, 2}
		all[at+"v_proj.lora_A.weight"], all[at+"v_proj.lora_B.weight"] = []int{2, 8}, []int{4, 2}
	}
	return all
}

// use reads a directory and gives it to a small Llama.
func use(t testing.TB, dir string) error {
	t.Helper()
	d, err := peft.Read(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	a, err := d.Adapter(modelOf(t, small("llama"), nil))
	if err != nil {
		return err
	}
	c := small("llama")
	c.Adapter = a
	m, err := stages.NewModel(c)
	if err != nil {
		return err
	}
	load, err := d.Weights(m, base)
	if err != nil {
		return err
	}
	for _, p := range m.Params {
		if err := load(p, "", make([]float32, p.Len())); err != nil {
			return err
		}
	}
	return nil
}

// TestKeys: each key of adapter_config.json is honored, has no effect, or is refused by name.
func TestKeys(t *testing.T) {
	if err := use(t, directory(t, published, llama())); err != nil {
		t.Fatal(err)
	}
	for set, wrong := range map[string]string{
		`"peft_type": "LOHA"`:          "peft_type",
		`"peft_type": null`:            "peft_type",
		`"r": 0`:                       "r is 0",
		`"r": 3`:                       "rank 3",
		`"r": 1e99`:                    "r is 1e99",
		`"r": 2.5`:                     "r is 2.5",
		`"r": 2.0`:                     "",
		`"lora_alpha": 16.5`:           "",
		`"lora_alpha": 0`:              "lora_alpha is 0: it must be a number above 0",
		`"lora_alpha": "8"`:            "lora_alpha",
		`"lora_dropout": 1`:            "lora_dropout",
		`"lora_dropout": 0.1`:          "",
		`"use_rslora": true`:           "",
		`"use_rslora": 1`:              "use_rslora",
		`"use_dora": true`:             "lora_magnitude_vector is missing",
		`"target_modules": null`:       "target_modules",
		`"target_modules": []`:         "target_modules",
		`"target_modules": 7`:          "target_modules",
		`"target_modules": ["q_proj"]`: "does not select it",
		`"target_modules": ["q_proj", "v_proj", "k_proj"]`: "no adapter of it",
		`"target_modules": ".*\\.[qv]_proj"`:               "",
		`"target_modules": ".*\\.q_proj"`:                  "does not select it",
		`"target_modules": "(?=x).*"`:                      "regular expression",
		`"target_modules": "all-linear"`:                   "no adapter of it",
		`"exclude_modules": ["k_proj"]`:                    "",
		`"exclude_modules": ["layers.1.self_attn.q_proj"]`: "does not select it",
		`"layers_to_transform": [0, 1]`:                    "",
		`"layers_to_transform": 1`:                         "does not select it",
		`"layers_to_transform": "1"`:                       "layers_to_transform",
		`"layers_pattern": "layers"`:                       "",
		`"rank_pattern": {"q_proj": 4}`:                    "rank 4",
		`"rank_pattern": {"q_proj": 2, "v_pro.": 2}`:       "",
		`"rank_pattern": {"q_proj": 0}`:                    "rank_pattern",
		`"rank_pattern": {"(": 2}`:                         "rank_pattern",
		`"rank_pattern": [2]`:                              "rank_pattern",
		`"alpha_pattern": {"q_proj": 3}`:                   "",
		`"alpha_pattern": {"q_proj": null}`:                "alpha_pattern",
		`"modules_to_save": ["lm_head"]`:                   "modules_to_save",
		`"init_lora_weights": "gaussian"`:                  "",
		`"init_lora_weights": "pissa_niter_4"`:             "init_lora_weights",
		`"bias": "all"`:                                    "bias",
		`"lora_bias": true`:                                "lora_bias",
		`"task_type": "SEQ_CLS"`:                           "task_type",
		`"task_type": null`:                                "",
		`"trainable_token_indices": [1]`:                   "trainable_token_indices",
		`"target_parameters": ["x"]`:                       "target_parameters",
		`"layer_replication": [[0, 2]]`:                    "layer_replication",
		`"alora_invocation_tokens": [1]`:                   "alora_invocation_tokens",
		`"use_qalora": true`:                               "use_qalora",
		`"loftq_config": {"loftq_bits": 4}`:                "loftq_config",
		`"arrow_config": {}`:                               "arrow_config",
		`"fan_in_fan_out": true`:                           "",
		`"new_key": null`:                                  "",
		`"new_key": 1`:                                     "new_key",
	} {
		key, _, _ := strings.Cut(set, ":")
		kept := slices.DeleteFunc(members(t, published), func(one string) bool { return strings.HasPrefix(one, key+":") })
		config := "{" + strings.Join(append(kept, set), ", ") + "}"
		err := use(t, directory(t, config, llama()))
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", set, err, wrong)
		}
	}
}

// members are the members of an object as text.
func members(t *testing.T, object string) (list []string) {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &all); err != nil {
		t.Fatal(err)
	}
	for key, v := range all {
		list = append(list, fmt.Sprintf("%q: %s", key, v))
	}
	return list
}

// TestDamaged: tensors that are missing, foreign, or of other shapes are one error with the file and the tensor.
func TestDamaged(t *testing.T) {
	const q, file = "base_model.model.model.layers.1.self_attn.q_proj", peft.WeightsFile
	for name, c := range map[string]struct {
		change func(map[string][]int)
		want   []string
	}{
		"B is missing": {func(m map[string][]int) { delete(m, q+".lora_B.weight") },
			[]string{file, "layers.1.self_attn.q_proj", "lora_B.weight is missing"}},
		"A is missing": {func(m map[string][]int) { delete(m, q+".lora_A.weight") }, []string{file, "lora_A.weight is missing"}},
		"module missing": {func(m map[string][]int) { delete(m, q+".lora_A.weight"); delete(m, q+".lora_B.weight") },
			[]string{file, "layers.1.self_attn.q_proj", "no adapter of it"}},
		"no prefix": {func(m map[string][]int) { m["layers.0.lora_A.weight"] = []int{2, 8} },
			[]string{file, `"layers.0.lora_A.weight"`, "base_model.model."}},
		"adapter's name": {func(m map[string][]int) { m[q+".lora_A.default.weight"] = []int{2, 8} },
			[]string{file, "lora_A.default.weight"}},
		"embedding": {func(m map[string][]int) { m["base_model.model.model.embed_tokens.lora_embedding_A"] = []int{2, 8} },
			[]string{file, "embeddings"}},
		"foreign": {func(m map[string][]int) { m["base_model.model.model.norm.weight"] = []int{8} },
			[]string{file, "modules_to_save", "norm"}},
		"unknown":    {func(m map[string][]int) { m["base_model.model.x"] = []int{8} }, []string{file, `"base_model.model.x"`}},
		"other rank": {func(m map[string][]int) { m[q+".lora_B.weight"] = []int{8, 3} }, []string{file, "rank 2"}},
		"other base": {func(m map[string][]int) { m[q+".lora_A.weight"] = []int{2, 9} }, []string{file, "has 9 inputs and 8 outputs"}},
		"more layers": {func(m map[string][]int) {
			for _, e := range []string{"A",
				"B"} {
				m["base_model.model.model.layers.2.self_attn.q_proj.lora_"+e+".weight"] = m[q+".lora_"+e+".weight"]
			}
		}, []string{file, "layers.2.self_attn.q_proj", "no such linear layer"}},
		"a vector":  {func(m map[string][]int) { m[q+".lora_A.weight"] = []int{16} }, []string{file, "matrices"}},
		"empty":     {func(m map[string][]int) { m[q+".lora_A.weight"] = []int{2, 0} }, []string{file, "[2 0]"}},
		"magnitude": {func(m map[string][]int) { m[q+".lora_magnitude_vector"] = []int{8} }, []string{file, "use_dora"}},
		"nothing":   {func(m map[string][]int) { clear(m) }, []string{file, "no tensors"}},
	} {
		all := llama()
		c.change(all)
		err := use(t, directory(t, published, all))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	whole := directory(t, published, llama())
	weights := string(read(t, filepath.Join(whole, peft.WeightsFile)))
	for n := 0; n < len(weights); n += 1 + len(weights)/40 {
		if err := use(t, files(t, published, weights[:n])); !errors.Is(err, peft.ErrAdapter) ||
			!strings.Contains(err.Error(), peft.WeightsFile) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	nan := weights[:len(weights)-4] + "\x00\x00\xc0\x7f"
	if err := use(t, files(t, published, nan)); err == nil || !strings.Contains(err.Error(), "not a finite number") {
		t.Errorf("NaN: %v", err)
	}
	for text, want := range map[string]error{"": peft.ErrAdapter, "{": peft.ErrAdapter, "[]": peft.ErrAdapter,
		`{"r": 2, "r": 2}`: peft.ErrAdapter} {
		if err := use(t, files(t, text, weights)); !errors.Is(err, want) || !strings.Contains(err.Error(), peft.ConfigFile) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := peft.Read(t.TempDir()); !errors.Is(err, peft.ErrNotAdapter) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := peft.Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// TestDense: an adapter of a tensor with several layers, as PEFT trains it, computes the same in each of them.
func TestDense(t *testing.T) {
	tensors := make(map[string][]int)
	for i := range 2 {
		at := fmt.Sprintf("base_model.model.model.layers.%d.self_attn.qkv_proj.lora_", i)
		tensors[at+"A.weight"], tensors[at+"B.weight"] = []int{3, 8}, []int{16, 3}
	}
	config := strings.Replace(strings.Replace(published, `["q_proj", "v_proj"]`, `["qkv_proj"]`, 1), `"r": 2`, `"r": 3`, 1)
	d, err := peft.Read(directory(t, config, tensors))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	a, err := d.Adapter(modelOf(t, small("phi3"), nil))
	if err != nil {
		t.Fatal(err)
	}
	m := modelOf(t, small("phi3"), a)
	load, err := d.Weights(m, base)
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	for _, l := range m.Linears()[:3] {
		if l.Rank != 3 || l.Alpha != 8 {
			t.Errorf("%+v", l)
		}
		for _, p := range m.Params {
			if p.Name != l.Module+stages.AdapterB {
				continue
			}
			got := make([]float32, p.Len())
			if err := load(p, "", got); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if v != float32((row*3+i)%5)-1.5 {
					t.Fatalf("%s: %v", p.Name, got)
				}
			}
			row += p.Whole[0]
		}
	}
	if row != 16 {
		t.Errorf("%d rows", row)
	}
}

// TestMerge compares merged weights with the layer's definition, in both orders of a weight's dimensions.
func TestMerge(t *testing.T) {
	const in, out, rank = 5, 4, 2
	at := func(seed, n int) (v []float32) {
		for i := range n {
			v = append(v, float32(math.Cos(float64(seed*31+i*7))))
		}
		return v
	}
	f := peft.Factors{A: at(1, rank*in), B: at(2, out*rank)}
	for _, inOut := range []bool{false, true} {
		for _, magnitude := range [][]float32{nil, at(3, out)} {
			l := stages.LinearLayer{In: in, Out: out, InOut: inOut, Rank: rank, Scale: 1.5}
			w := at(4, in*out)
			f.Magnitude = magnitude
			got := slices.Clone(w)
			peft.Merge(l, got, f)
			index := func(o, i int) int {
				if inOut {
					return i*out + o
				}
				return o*in + i
			}
			for o := range out {
				row, norm := make([]float64, in), 0.0
				for i := range in {
					row[i] = float64(w[index(o, i)])
					for k := range rank {
						row[i] += 1.5 * float64(f.B[o*rank+k]) * float64(f.A[k*in+i])
					}
					norm += row[i] * row[i]
				}
				for i, v := range row {
					if magnitude != nil {
						v *= float64(magnitude[o]) / math.Sqrt(norm)
					}
					if math.Abs(v-float64(got[index(o, i)])) > 1e-6 {
						t.Errorf("inOut %v, magnitude %v: [%d %d] is %g instead of %g", inOut, magnitude, o, i, got[index(o, i)], v)
					}
				}
			}
		}
	}
}

// FuzzRead: no files panic, and an adapter that is accepted has the model's shapes.
func FuzzRead(f *testing.F) {
	whole := directory(f, published, llama())
	weights := read(f, filepath.Join(whole, peft.WeightsFile))
	f.Add([]byte(published), weights)
	f.Add([]byte(published), weights[:len(weights)/2])
	f.Add([]byte(`{"peft_type": "LORA", "target_modules": ".*", "rank_pattern": {"a|b": 3}}`), weights)
	f.Fuzz(func(t *testing.T, config, weights []byte) {
		_ = use(t, files(t, string(config), string(weights)))
	})
}
