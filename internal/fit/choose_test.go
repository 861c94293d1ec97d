package fit

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/propose"
)

// proposal is one for tuning at a context of 512.
func proposal() *propose.Proposal {
	return &propose.Proposal{About: "data", Bytes: 1000, Settings: []config.Setting{{Key: "run.steps", Value: 20},
		{Key: "data.train", Value: []string{"chat.jsonl"}}, {Key: "data.format", Value: "documents"}, {Key: "model.from", Value: "base"},
		{Key: "model.context", Value: 512}, {Key: "batch.sequences", Value: 8}, {Key: "optimizer.lr", Value: 5e-5}}}
}

const mib = 1 << 20

// modelled is a model of memory: weights of 1,000 MiB, all with gradients and moments or at the bytes of their type, and
// activations by the tokens of a microbatch.
func modelled(c *config.Config, data int64) (n Need, err error) {
	switch {
	case c.LoRA() == nil:
		n.Least = 4000 * mib
	case c.Model.FrozenDType == config.FrozenInt8:
		n.Least = 270 * mib
	case c.Model.FrozenDType == config.FrozenNF4:
		n.Least = 150 * mib
	default:
		n.Least = 520 * mib
	}
	activations := int64(c.Batch.Microbatch*c.Model.Context) * mib / 2
	if c.Pipeline.Recompute == "full" {
		activations /= 8
	}
	n.Tensors = n.Least + activations
	n.Rest = restOf(n.Tensors, data)
	return n, nil
}

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name string
		free int64 // MiB; 0: not known
		sets []string
		want string // of the choice, or of the error
		not  string // in Why
	}{
		{"not known", 0, nil, "all weights, context 512, microbatch 4", ""},
		{"all fits", 6000, nil, "all weights, context 512, microbatch 4", ""},
		{"a smaller microbatch", 5000, nil, "all weights, context 512, microbatch 2", "too large: all weights, context 512, microbatch 4"},
		{"recomputation", 4600, nil, "all weights, context 512, microbatch 4, recomputation",
			"too large: all weights, context 512, microbatch 1"},
		{"adapters", 4000, nil, "adapters, context 512, microbatch 4", "too large: all weights, without activations: about 4.3 GiB"},
		{"adapters, recomputed", 900, nil, "adapters, context 512, microbatch 4, recomputation",
			"too large: adapters, context 512, microbatch 1"},
		{"8 bits", 710, nil, "adapters, base in 8 bits, context 512, microbatch 4, recomputation", "too large: adapters, without activations"},
		{"4 bits", 400, nil, "adapters, base in 4 bits, context 512, microbatch 1, recomputation", "too large: adapters, base in 8 bits"},
		{"a shorter context", 367, nil, "adapters, base in 4 bits, context 256, microbatch 1, recomputation", "base in 4 bits, context 512"},
		{"nothing", 300, nil, "300.0 MiB are free; the smallest option needs about", ""},
		{"a context that is set", 367, []string{"model.context=512"}, "367.0 MiB are free; the smallest option needs about", ""},
		{"a rank that is set", 6000, []string{"adapter.rank = 4"}, "adapters, context 512, microbatch 4", ""},
		{"a rank of 0", 6000, []string{"adapter.rank=4", "adapter.rank = 0"}, "all weights, context 512, microbatch 4", ""},
		{"a rank of 0 that does not fit", 4000, []string{"adapter.rank=0"}, "the smallest option needs about 4.3 GiB (all weights, ", ""},
		{"a type that is set", 6000, []string{"model.frozen_dtype=nf4"}, "adapters, base in 4 bits, context 512, microbatch 4", ""},
		{"a microbatch that is set", 5000, []string{"batch.microbatch=8"}, "all weights, context 512, microbatch 8, recomputation", ""},
		{"a limit of tensors", 6000, []string{"device.memory_gib=1"}, "adapters, context 512, microbatch 1", "too large: all weights"},
		{"a low limit of tensors", 6000, []string{"device.memory_gib=0.1"}, "device.memory_gib allows 102.4 MiB of tensors", ""},
		{"a mistake", 6000, []string{"model.contxt=5"}, "model.contxt", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sets, all := AllWeights(tt.sets)
			c, err := choose(Options{Proposal: proposal(), Sets: sets, Env: os.LookupEnv, Free: tt.free * mib, AllWeights: all}, modelled)
			if err != nil {
				if !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("error %v, want %q", err, tt.want)
				}
				if is := errors.Is(err, ErrMemory); is == (tt.name == "a mistake") {
					t.Errorf("%v: ErrMemory is %v", err, is)
				}
				return
			}
			if got, _, _ := strings.Cut(strings.TrimPrefix(c.Why[0], "chosen: "), ": about"); got != tt.want {
				t.Errorf("chosen: %q, want %q\n%s", got, tt.want, strings.Join(c.Why, "\n"))
			}
			if tt.not != "" && !slices.ContainsFunc(c.Why[1:], func(line string) bool { return strings.Contains(line, tt.not) }) {
				t.Errorf("no line %q in\n%s", tt.not, strings.Join(c.Why, "\n"))
			}
		})
	}
}

// TestChooseFits: what is chosen fits, and its settings alone make its configuration, with the values of --set.
func TestChooseFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sets := rapid.SampledFrom([][]string{nil, {"batch.sequences=3"}, {"adapter.rank=8", "optimizer.lr=1e-3"}, {"pipeline.recompute=full"},
			{"model.context=100"}}).Draw(t, "sets")
		o := Options{Proposal: proposal(), Sets: sets, Env: os.LookupEnv, Free: rapid.Int64Range(100, 6000).Draw(t, "free") * mib}
		c, err := choose(o, modelled)
		if errors.Is(err, ErrMemory) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.Need.Bytes() > o.Free {
			t.Fatalf("needs %d of %d bytes", c.Need.Bytes(), o.Free)
		}
		if limit := int64(c.Config.Device.MemoryGiB * (1 << 30)); limit < c.Need.Tensors || limit+restOf(limit, 1000) > o.Free+2*mib {
			t.Fatalf("a limit of %d bytes for %+v in %d", limit, c.Need, o.Free)
		}
		again, err := config.Parse("config.toml", config.Outline(nil, c.Settings), nil, os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		if d := config.Diff(c.Config, again); len(d) > 0 {
			t.Fatalf("the settings differ from the configuration: %v", d)
		}
	})
}
