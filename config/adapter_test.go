package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

func TestAdapter(t *testing.T) {
	c := parse(t, `data.train = ['a.txt']
model.from = 'base'
[adapter]
rank = 8
rslora = true
targets = ['q_proj', 'v_proj']
rank_pattern = ['layers\.1\..*=16', 'q_proj=4']
alpha_pattern = ['x=y=0.5']
save = ['lm_head']
`)
	a := c.LoRA()
	if a.Rank != 8 || a.Alpha != 16 || !a.RSLoRA || len(a.Targets) != 2 || a.RankPattern[`layers\.1\..*`] != 16 ||
		a.RankPattern["q_proj"] != 4 || a.AlphaPattern["x=y"] != 0.5 || a.Save[0] != "lm_head" {
		t.Errorf("the adapter is %+v", a)
	}
	if again := parse(t, string(c.TOML())).LoRA(); again.Alpha != a.Alpha || again.RankPattern["q_proj"] != 4 {
		t.Errorf("printed and read again it is %+v", again)
	}
	if a := parse(t, "data.train = ['a.txt']\n[model]\nfrom = 'base'\n[adapter]\nrank = 2\n").LoRA(); a.Targets[0] != stages.AllLinear {
		t.Errorf("the usual targets are %q", a.Targets)
	}
	continued := parse(t, "data.train = ['a.txt']\nmodel.from = 'b'\n[adapter]\nfrom = 'd'\nrank = 4\n")
	a = &stages.Adapter{Rank: 4, Alpha: 3, Targets: []string{"q_proj"}, RankPattern: map[string]int{"v": 2},
		AlphaPattern: map[string]float64{"v": 0.1}}
	if own, err := continued.WithAdapter(a); err != nil || !reflect.DeepEqual(own.LoRA(), a) ||
		!reflect.DeepEqual(parse(t, string(own.TOML())).LoRA(), a) {
		t.Errorf("continued: %+v, %v", own, err)
	}
	a.Rank = 5
	if _, err := continued.WithAdapter(a); err == nil || !strings.Contains(err.Error(),
		"adapter.rank: 4, but the adapter in adapter.from has 5") {
		t.Errorf("another rank: %v", err)
	}
	for text, want := range map[string]string{
		"[adapter]\nfrom = 'd'":                                                 "adapter.from: \"d\" needs a base model",
		"model.from = 'b'\n[adapter]\nrank = 0":                                 "adapter.rank: 0 adds no weights to train; use a rank such as 16",
		"model.from = 'b'\n[adapter]\nrank = 5000":                              "adapter.rank: 5000 is too large; use 0 to 4096",
		"[adapter]\nrank = 8":                                                   "adapter.rank: 8 needs a base model",
		"model.from = 'b'\n[adapter]\ntargets = ['q_proj']":                     "adapter.targets: [\"q_proj\"] has no effect",
		"model.from = 'b'\n[adapter]\nrank = 8\ntargets = []":                   "adapter.targets: the list is empty",
		"model.from = 'b'\nmodel.freeze = ['embed']\n[adapter]\nrank = 8":       "adapter.rank: 8 freezes all weights of the base",
		"model.from = 'b'\n[adapter]\nrank = 8\nrank_pattern = ['q_proj']":      "\"q_proj\" is not a pattern and a number",
		"model.from = 'b'\n[adapter]\nrank = 8\nrank_pattern = ['q=0']":         "\"q=0\": 0 is too small; use 1 to 4096",
		"model.from = 'b'\n[adapter]\nrank = 8\nrank_pattern = ['q=1', 'q=2']":  "\"q\" is given twice: as 1 and as 2",
		"model.from = 'b'\n[adapter]\nrank = 8\ndora = true\ndropout = 0.1":     "cannot be combined with adapter.dora = true",
		"model.from = 'b'\n[adapter]\nrank = 8\nalpha = 0":                      "adapter.alpha: 0 leaves the adapters without effect",
		"model.from = 'b'\n[adapter]\nrank = 8\nalpha_pattern = ['q_proj=inf']": "is not a finite number",
	} {
		_, err := Parse("c.toml", []byte("data.train = ['a.txt']\n"+text+"\n"), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestMovedBase: the base of an adapter may be elsewhere, and its tokenizer with it; another tokenizer is a conflict.
func TestMovedBase(t *testing.T) {
	const head, adapter = "data.train = ['a.txt']\n", "[adapter]\nrank = 4\n"
	at := func(text, dir, tokenizer string) *Config {
		return parse(t, head+text, "model.from="+dir).WithTokenizer(tokenizer)
	}
	was := at(adapter, "base", "./base")
	if c := ResumeConflicts(was, at(adapter, "moved", "./moved")); len(c) > 0 {
		t.Errorf("a moved base: %+v", c)
	}
	if c := ResumeConflicts(was, at(adapter, "base", "./words")); len(c) != 1 || c[0].Key != "data.tokenizer" {
		t.Errorf("another tokenizer: %+v", c)
	}
	if c := ResumeConflicts(at("", "base", "./base"), at("", "moved", "./moved")); len(c) == 0 {
		t.Error("a model that is trained whole has no conflict")
	}
}
