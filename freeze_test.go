package troupe_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
)

// frozen are runs of which some layers are not trained.
var frozen = []struct {
	name   string
	sets   []string
	frozen func(name string) bool // of a weight
}{
	{"gpt2, tied, first layers", []string{"model.family=gpt2", `model.freeze=["embed", "0-1"]`},
		func(name string) bool {
			return strings.HasPrefix(name, "transformer.w") || strings.HasPrefix(name, "transformer.h.0.") || strings.HasPrefix(name, "transformer.h.1.")
		}},
	{"llama, untied, in the middle, bfloat16", []string{"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false", "device.dtype=bfloat16", `model.freeze=["1-2", "head"]`},
		func(name string) bool {
			return strings.HasPrefix(name, "model.layers.1.") || strings.HasPrefix(name, "model.layers.2.") || name == "model.norm.weight" || name == "lm_head.weight"
		}},
	{"llama, all but the last layer, bfloat16", []string{"model.family=llama", "model.kv_heads=2", "device.dtype=bfloat16", `model.freeze=["embed", "0-2", "head"]`},
		func(name string) bool { return !strings.HasPrefix(name, "model.layers.3.") }},
	{"qwen3 with a window, in the middle, bfloat16", []string{"model.family=qwen3", "model.kv_heads=2", "model.head_dim=10", "model.window=6", "device.dtype=bfloat16", `model.freeze=["embed", "2"]`},
		func(name string) bool {
			return name == "model.embed_tokens.weight" || strings.HasPrefix(name, "model.layers.2.")
		}},
	{"gpt2, tied, head with multi-token prediction", []string{"model.family=gpt2", "model.mtp_layers=1", `model.freeze=["embed", "4"]`},
		func(name string) bool {
			return strings.HasPrefix(name, "transformer.w") || strings.HasPrefix(name, "transformer.h.4.")
		}},
}

// TestFrozen: a run that leaves layers as they are has the same bits under every layout; those
// layers keep their weights and have no optimizer state, and the others learn.
func TestFrozen(t *testing.T) {
	for k, f := range frozen {
		t.Run(f.name, func(t *testing.T) {
			want := filepath.Join(t.TempDir(), "out")
			train(t, want, f.sets...)
			before, after := openAt(t, want, 3), openAt(t, want, 6)
			state := after.Optimizer().Names()
			for _, name := range after.Model().Names() {
				_, was := floats(t, before.Model(), name)
				_, w := floats(t, after.Model(), name)
				same := slices.Equal(w, was)
				if same != f.frozen(name) {
					t.Errorf("%s: unchanged %v, frozen %v", name, same, f.frozen(name))
				}
				if slices.Contains(state, "m."+name) == f.frozen(name) {
					t.Errorf("%s: frozen %v, and its moments are stored: %v", name, f.frozen(name), !f.frozen(name))
				}
			}
			for i, l := range layouts {
				if (i+k)%2 == 0 && (!raceDetector || i%6 == 0) {
					sets := l.sets
					if slices.Contains(f.sets, "model.mtp_layers=1") && strings.Contains(strings.Join(sets, " "), "layout") {
						continue // of four layers
					}
					sameUnder(t, want, l.name, slices.Concat(f.sets, sets))
				}
			}
		})
	}
}

// openAt opens the checkpoint of a step.
func openAt(t *testing.T, out string, step int) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.OpenAt(stepDir(out, step))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
