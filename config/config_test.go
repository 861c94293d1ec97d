package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// parse reads a text that is expected to be right.
func parse(t *testing.T, text string, sets ...string) *Config {
	t.Helper()
	c, err := Parse("config.toml", []byte(text), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// value renders the value at a key.
func value(c *Config, key string) string { return render(lookup(key).load(c)) }

func TestLoad(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "config.toml")
	if err := os.WriteFile(file, []byte("[data]\ntrain = ['${T}.txt']\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, []string{"run.steps=7"}, lookupIn(map[string]string{"T": "a"}))
	if err != nil {
		t.Fatal(err)
	}
	if c.Run.Steps != 7 || len(c.Data.Train) != 1 || c.Data.Train[0] != "a.txt" {
		t.Errorf("got steps %d and train %q, want 7 and a.txt", c.Run.Steps, c.Data.Train)
	}
	if got, want := c.Where("data.train").String(), file+":2:9"; got != want {
		t.Errorf("data.train is at %s, want %s", got, want)
	}
	if _, err := Load(filepath.Join(folder, "none.toml"), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives %v, want fs.ErrNotExist", err)
	}
	if _, err := Load(folder, nil, nil); err == nil {
		t.Error("a folder was read as a config")
	}
	if err := os.WriteFile(file, make([]byte, MaxFileBytes+2), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file, nil, nil); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("an overlong file gives %v", err)
	}
}

func TestWhere(t *testing.T) {
	c := parse(t, "[data]\ntrain = ['ä', 'b'] # ä\n[pipeline]\nstages\t=  2\nlayout = \"EtttL\"\n", "pipeline.chunks = 2")
	for _, want := range []struct {
		key, pos string
		isSet    bool
	}{
		{"data.train", "config.toml:2:9", true},
		{"pipeline.stages", "config.toml:4:11", true},
		{"pipeline.chunks", "--set pipeline.chunks = 2", true},
		{"pipeline.microbatch_group_size", "default", false},
	} {
		if got := c.Where(want.key).String(); got != want.pos {
			t.Errorf("%s comes from %s, want %s", want.key, got, want.pos)
		}
		if got := c.IsSet(want.key); got != want.isSet {
			t.Errorf("IsSet(%s) = %v", want.key, got)
		}
	}
	got := c.Errorf("pipeline.layout", "%d layers, but the model has %d", 3, 4).Error()
	if want := "config.toml:5:10: pipeline.layout: 3 layers, but the model has 4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// All the ways in which TOML writes a key of a section.
func TestSpellings(t *testing.T) {
	for _, text := range []string{
		"data.train = ['a']\nmodel.layers = 7",
		"data = { train = ['a'] }\nmodel = { layers = 7 }",
		"[data]\ntrain = ['a']\n[model]\nlayers = 0x7",
		"\xEF\xBB\xBF[ data ]\r\n'train' = [\r\n  'a', # first\r\n]\r\n[\"model\"]\r\n\"layers\" = +7\r\n",
	} {
		c := parse(t, text)
		if c.Model.Layers != 7 || len(c.Data.Train) != 1 || c.Data.Train[0] != "a" {
			t.Errorf("%q gives layers %d and train %q, want 7 and a", text, c.Model.Layers, c.Data.Train)
		}
	}
}

func TestSet(t *testing.T) {
	file := "[data]\ntrain = ['file.txt']\n[run]\nsteps = 3\n[optimizer]\nwarmup_steps = 1\n"
	for _, c := range []struct{ set, key, want string }{
		{"run.steps=12", "run.steps", "12"},
		{" run.steps = 1_000 # many", "run.steps", "1000"},
		{"optimizer.lr=1", "optimizer.lr", "1.0"},
		{"optimizer.lr=3e-4", "optimizer.lr", "0.0003"},
		{"optimizer.weight_decay=0x10", "optimizer.weight_decay", "16.0"},
		{"optimizer.weight_decay=-0.0", "optimizer.weight_decay", "0.0"},
		{"model.tie_embeddings=false", "model.tie_embeddings", "false"},
		{"model.family=llama", "model.family", `"llama"`},
		{`model.family="llama"`, "model.family", `"llama"`},
		{"run.name='first try'", "run.name", `"first try"`},
		{"run.out=a=b", "run.out", `"a=b"`},
		{"data.train=a b.txt", "data.train", `["a b.txt"]`},
		{`data.train="a b.txt"`, "data.train", `["a b.txt"]`},
		{`data.train=["a.txt", 'b.txt']`, "data.train", `["a.txt", "b.txt"]`},
		{"data.train=[ab]*.txt", "data.train", `["[ab]*.txt"]`},
		{"data.train=1\n[run]", "data.train", `["1\n[run]"]`},
		{"pipeline.layout=", "pipeline.layout", `""`},
		{"pipeline.schedule=", "pipeline.schedule", `"none"`},
	} {
		if got := value(parse(t, file, c.set), c.key); got != c.want {
			t.Errorf("--set %s gives %s, want %s", c.set, got, c.want)
		}
	}
}

// A --set stands in for the file's value, and a later one for an earlier.
func TestSetReplaces(t *testing.T) {
	c := parse(t, "[data]\ntrain = ['${UNSET}']\n[run]\nsteps = 'many'", "data.train=a", "run.steps=5", "run.steps=600")
	if value(c, "data.train") != `["a"]` || c.Run.Steps != 600 {
		t.Errorf("got train %q and steps %d, want a and 600", c.Data.Train, c.Run.Steps)
	}
}

func TestExpand(t *testing.T) {
	env := lookupIn(map[string]string{"HOME": "/home/ada", "EMPTY": "", "PRICE": "$5", "_x9": "y"})
	for _, c := range []struct{ path, want string }{
		{"a/b", "a/b"},
		{"${HOME}/a", "/home/ada/a"},
		{"${HOME:-b}${HOME}", "/home/ada/home/ada"},
		{"a${NONE:-b/c}d", "ab/cd"},
		{"a${NONE:-}d", "ad"},
		{"a${EMPTY:-b}d", "abd"},
		{"a${EMPTY}d", "ad"},
		{"${NONE:-a:-b}", "a:-b"},
		{"${_x9}", "y"},
		{"$HOME/$5}", "$HOME/$5}"},
		{"${PRICE}", "$5"},
	} {
		if got, msg, _ := expand(c.path, env); got != c.want || msg != "" {
			t.Errorf("expand(%q) = %q, %q; want %q", c.path, got, msg, c.want)
		}
	}
	for _, path := range []string{"${NONE}", "${", "${HOME", "${}", "${:-a}", "${a b}", "${9}", "${HOME-b}", "a${NONE:-${HOME}}",
		"${PRICE}${NONE:-$}{"} {
		if got, msg, _ := expand(path, env); msg == "" {
			t.Errorf("expand(%q) = %q, want a refusal", path, got)
		}
	}
}

// Variables stand in paths alone.
func TestExpandOnlyPaths(t *testing.T) {
	env := lookupIn(map[string]string{"A": "a"})
	c, err := Parse("config.toml", nil, []string{
		"run.out=${A}", "model.from=${A}", "data.train=${A}", "data.val=['${A}', '${B:-b}']", "pipeline.layout=${A}",
	}, env)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"run.out": `"a"`, "model.from": `"a"`, "data.train": `["a"]`, "data.val": `["a", "b"]`, "pipeline.layout": `"${A}"`,
	} {
		if got := value(c, key); got != want {
			t.Errorf("%s = %s, want %s", key, got, want)
		}
	}
}

// A GPU may be named by its number, which is told apart from the kind.
func TestOrdinalOf(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want string
	}{
		{nil, "auto -1, auto -1"},
		{[]string{"device.kind=cuda:3"}, "cuda 3, cuda 3"},
		{[]string{`device.ranks=["cuda", "cuda:63"]`, "device.tf32=true"}, "cuda -1, cuda 63"},
		{[]string{`device.ranks=["cuda:0", "cpu"]`, "device.threads=1"}, "cuda 0, cpu -1"},
	} {
		d := parse(t, "data.train = ['a.txt']\npipeline.stages = 2", c.sets...).Device
		if got := fmt.Sprintf("%s %d, %s %d", d.KindOf(0), d.OrdinalOf(0), d.KindOf(1), d.OrdinalOf(1)); got != c.want {
			t.Errorf("%q gives %s, want %s", c.sets, got, c.want)
		}
	}
	for word, text := range map[string]string{
		"cuda:64": `"cuda:64" is not the name of a GPU`, "cuda:-1": `"cuda:-1" is not the name of a GPU`, "cuda:": "is not the name of a GPU",
		"cuda:01": "is not the name of a GPU", "cuda:1:2": "is not the name of a GPU",
		"cpu:0": `"cpu:0"`, "gpu": `"gpu"`,
	} {
		for _, set := range []string{fmt.Sprintf("device.kind=%q", word), fmt.Sprintf(`device.ranks=["cpu", %q]`, word)} {
			if _, err := Parse("c.toml", []byte("data.train = ['a.txt']\npipeline.stages = 2"), []string{set}, nil); err == nil ||
				!strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %v, want %q", set, err, text)
			}
		}
	}
	// Ranks on GPUs of their own may begin a step ahead.
	for ranks, ahead := range map[string]bool{`["cuda:0", "cuda:1"]`: true, `["cuda:1", "cuda:1"]`: false, `["cuda", "cuda:0"]`: false,
		`["cuda", "cuda"]`: false} {
		c := parse(t, "data.train = ['a.txt']\npipeline.stages = 2\npipeline.schedule = 'zb-v'", "device.ranks="+ranks)
		if c.Pipeline.PostValidation != ahead {
			t.Errorf("ranks on %s: post_validation is %v", ranks, c.Pipeline.PostValidation)
		}
	}
}

// A rank's kind is the list's, or without a list the one for all.
func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want string
	}{
		{nil, "auto auto"},
		{[]string{"device.kind=cpu"}, "cpu cpu"},
		{[]string{"device.kind=auto", `device.ranks=["cuda", "auto"]`}, "cuda auto"},
		{[]string{"device.kind=cuda", "device.ranks=[]"}, "cuda cuda"},
	} {
		d := parse(t, "data.train = ['a.txt']\npipeline.stages = 2", c.sets...).Device
		if got := d.KindOf(0) + " " + d.KindOf(1); got != c.want {
			t.Errorf("%q gives %s, want %s", c.sets, got, c.want)
		}
	}
}
