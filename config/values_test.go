package config_test

import (
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
)

// TestNew: a configuration that Go code makes is that of a file with the same values.
func TestNew(t *testing.T) {
	for name, test := range map[string]struct {
		file  string
		set   func(*config.Config)
		given []string
	}{
		"only data": {`data.train = ["a.txt"]`, func(c *config.Config) { c.Data.Train = []string{"a.txt"} }, nil},
		"derived": {`
data.train = ["a.txt"]
run = {name = "x", steps = 20}
optimizer.lr = 3e-3
device.dtype = "bfloat16"
model.hidden = 64
batch.sequences = 6
pipeline.stages = 2`, func(c *config.Config) {
			c.Data.Train, c.Run.Name, c.Run.Steps, c.Optimizer.LR = []string{"a.txt"}, "x", 20, 3e-3
			c.Device.DType, c.Device.Residual, c.Model.Hidden, c.Batch.Sequences, c.Pipeline.Stages = "bfloat16", "", 64, 6, 2
		}, nil},
		"zeros": {`
data.train = ["a.txt"]
optimizer = {min_lr = 0.0, warmup_steps = 0}`, func(c *config.Config) {
			c.Data.Train, c.Optimizer.MinLR, c.Optimizer.WarmupSteps = []string{"a.txt"}, 0, 0
		}, nil},
		"given": {`
data.train = ["a.txt"]
optimizer = {lr = 3e-3, min_lr = 1e-4}`, func(c *config.Config) {
			c.Data.Train, c.Optimizer.LR, c.Optimizer.MinLR = []string{"a.txt"}, 3e-3, 1e-4
		}, []string{"optimizer.min_lr"}},
		"another model": {`
data.train = ["a.txt"]
model.from = "runs/first"`, func(c *config.Config) { c.Data.Train, c.Model.From = []string{"a.txt"}, "runs/first" }, nil},
	} {
		want, err := config.Parse("x.toml", []byte(test.file), nil, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := config.New(test.set, test.given...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a, b := string(got.TOML()), string(want.TOML()); a != b {
			t.Errorf("%s:\n%s\nthe file gives\n%s", name, a, b)
		}
	}
}

// TestWith: a change of a configuration resolves what follows from it, and keeps what the file has.
func TestWith(t *testing.T) {
	c, err := config.Parse("x.toml", []byte("data.train = [\"a.txt\"]\noptimizer.warmup_steps = 7"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := string(c.TOML())
	got, err := c.With(func(c *config.Config) { c.Optimizer.LR, c.Device.DType = 1e-2, "bfloat16" })
	if err != nil {
		t.Fatal(err)
	}
	if o := got.Optimizer; o.MinLR != 1e-3 || o.WarmupSteps != 7 || got.Device.Residual != "bfloat16" {
		t.Errorf("%+v, residual %q", o, got.Device.Residual)
	}
	if string(c.TOML()) != before {
		t.Error("the configuration itself has changed")
	}
	if w := got.Where("optimizer.warmup_steps"); w.Row != 2 {
		t.Errorf("warmup_steps is from %+v", w)
	}
	_, err = config.New(func(c *config.Config) { c.Optimizer.LR, c.Run.Steps = -1, 0 })
	if err == nil || !strings.Contains(err.Error(), "optimizer.lr") || !strings.Contains(err.Error(), "run.steps") ||
		!strings.Contains(err.Error(), "data.train") {
		t.Errorf("bad values: %v", err)
	}
	if _, err = config.New(func(*config.Config) {}, "optimizer.rate"); err == nil || !strings.Contains(err.Error(), "optimizer.rate") {
		t.Errorf("an unknown key: %v", err)
	}
}
