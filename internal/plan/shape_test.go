package plan_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// fromConfig is a configuration that begins from a directory.
func fromConfig(t testing.TB, from string, sets ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("from.toml", []byte("data.train = ['a.txt']\nbatch = {sequences = 4, microbatch = 1}"),
		append([]string{"model.from=" + from}, sets...), nil)
	must(t, err)
	return cfg
}

// TestLoadShape: the sizes and the tokenizer are those of the model to begin from, where the
// configuration says nothing against it.
func TestLoadShape(t *testing.T) {
	chars, err := tokenizer.BuildChars([]byte("abc"))
	must(t, err)
	of := func(c stages.Config, tok tokenizer.Tokenizer) string {
		_, f := newModel(t, c)
		return directory(t, c, f, tok)
	}
	bytes, none, letters, rotary := of(gpt2, tokenizer.Bytes{}), of(gpt2, nil), of(gpt2, chars), of(llama, tokenizer.Bytes{})
	strange := of(gpt2, nil)
	must(t, os.WriteFile(filepath.Join(strange, "tokenizer.json"), []byte(`{"model": {"type": "Strange"}}`), 0o644))
	for _, tt := range []struct {
		name string
		from string
		sets []string
		want []string // none: it fits
		tok  string   // that is taken
		ctx  int
	}{
		{"all of it", bytes, nil, nil, "bytes", 16},
		{"its tokenizer", letters, nil, nil, "chars", 16},
		{"the same sizes", bytes, []string{"model.hidden=8", "model.context=16", "data.tokenizer=bytes"}, nil, "bytes", 16},
		{"a shorter context", rotary, []string{"model.context=8"}, nil, "bytes", 8},
		{"a tokenizer that is named", none, []string{"data.tokenizer=bytes"}, nil, "bytes", 16},
		{"ids", none, []string{"data.format=uint16"}, nil, "bytes", 16},
		{"another width", bytes, []string{"model.hidden=64"}, []string{"model.hidden", "64", "8"}, "", 0},
		{"another family", bytes, []string{"model.family=llama"}, []string{"model.family", "gpt2"}, "", 0},
		{"a shorter context of learned positions", bytes, []string{"model.context=8"}, nil, "bytes", 8},
		{"a longer context", rotary, []string{"model.context=32"}, []string{"model.context: 32 is more than the 16 positions"}, "", 0},
		{"another tokenizer", letters, []string{"data.tokenizer=bytes"}, []string{`data.tokenizer: "bytes"`, `"chars"`}, "", 0},
		{"no tokenizer", none, nil, []string{"model.from: ", none, "has no tokenizer.json", "uint16"}, "", 0},
		{"a tokenizer that is not known", strange, nil, []string{"model.from: ", strange, "uint16"}, "", 0},
		{"no checkpoint", t.TempDir(), nil, []string{"model.from: ", checkpoint.ErrNotCheckpoint.Error()}, "", 0},
		{"nothing there", "nowhere", nil, []string{"model.from: ", "nowhere"}, "", 0},
	} {
		cfg, ckpt, err := plan.LoadFrom(fromConfig(t, tt.from, tt.sets...))
		if len(tt.want) > 0 {
			if err == nil {
				t.Fatalf("%s: it is loaded, %v", tt.name, ckpt.Close())
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: error %q, want %q in it", tt.name, err, text)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if m := cfg.Model; m.Layers != 2 || m.Hidden != 8 || m.FFN != 16 || m.Vocab != 256 || m.Context != tt.ctx ||
			cfg.Data.Tokenizer != tt.tok {
			t.Errorf("%s: %+v, the tokenizer %s", tt.name, m, cfg.Data.Tokenizer)
		}
		must(t, ckpt.Close())
	}
	if _, ckpt, err := plan.LoadFrom(fromConfig(t, "")); ckpt != nil || err != nil {
		t.Errorf("without model.from: %v, %v", ckpt, err)
	}
}

// TestResolve: a plan is made without data, and the caller's configuration stays.
func TestResolve(t *testing.T) {
	_, f := newModel(t, gpt2)
	cfg := fromConfig(t, directory(t, gpt2, f, tokenizer.Bytes{}), "pipeline.stages=2")
	p, err := plan.Resolve(cfg, nil)
	must(t, err)
	if cfg.Model.Hidden == 8 || p.Config().Model.Hidden != 8 || p.Model().Config.Vocab != 256 {
		t.Errorf("the configuration has a width of %d, the plan of %d, and a vocabulary of %d", cfg.Model.Hidden, p.Config().Model.Hidden,
			p.Model().Config.Vocab)
	}
	if p.Table().NumRanks() != 2 || len(p.Chunks(0)) != 1 || p.Layout().String() == "" || p.DeviceKind(1) != "cpu" || p.Report() == nil ||
		p.BubbleFraction() <= 0 {
		t.Errorf("%d ranks, layout %s on %s, bubble %g", p.Table().NumRanks(), p.Layout(), p.DeviceKind(1), p.BubbleFraction())
	}
	// The tied embedding is updated on both ranks.
	per := p.Parameters()
	if all := p.Model().Config.Parameters(); len(per) != 2 || per[0]+per[1] != all+256*8 {
		t.Errorf("the ranks have %d weights, the model %d", per, all)
	}
	// AdamW has two numbers beside each weight. The first rank saves what is tied.
	if got, err := p.CheckpointBytes(); err != nil || len(got) != 2 || got[0] != per[0]*4*3 || got[1] != (per[1]-256*8)*4*3 {
		t.Errorf("a copy of %d weights takes %d bytes, %v", per, got, err)
	}
	if flops := p.ChunkFLOPs(); len(flops) != 2 || flops[0] <= 0 || flops[1] <= flops[0] { // the head is the most of it
		t.Errorf("the stages take %v operations", flops)
	}
	if free, err := p.FreeBytes(); free <= 0 || err != nil {
		t.Errorf("there are %d bytes free, %v", free, err)
	}
	if _, err := plan.Resolve(fromConfig(t, "nowhere"), nil); err == nil || !strings.Contains(err.Error(), "model.from") {
		t.Errorf("error %v", err)
	}
	invalid := *cfg
	invalid.Run.Steps = -1
	if _, err := plan.Resolve(&invalid, nil); err == nil || !strings.Contains(err.Error(), "run.steps") {
		t.Errorf("error %v", err)
	}
	var at *config.Error
	if _, err := plan.Resolve(fromConfig(t, "", "pipeline.stages=2", "pipeline.layout=L"), nil); !errors.As(err, &at) ||
		!strings.Contains(err.Error(), "pipeline.layout") {
		t.Errorf("error %v", err)
	}
}
