package infer

import (
	"testing"

	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/stages"
)

// TestParts: the model reads a long prompt in parts, but whole if each part would rotate by its own length.
func TestParts(t *testing.T) {
	dynamic := stages.RopeScaling{Type: "dynamic", Factor: 2, Original: limitFeed + 1}
	for _, c := range []struct {
		scaling    stages.RopeScaling
		next, want int
	}{{stages.RopeScaling{}, 1100, limitFeed}, {dynamic, 1100, 1100}, {dynamic, limitFeed + 1, limitFeed}, {dynamic, 1, 1}} {
		w := writing{model: &trained.Model{Shape: &stages.Model{Config: stages.Config{RopeScaling: c.scaling}}},
			window: newTextWindow(4096, 4096, TextOptions{}), next: make([]int32, c.next), prompt: c.next, tokens: 1}
		if tokens, _ := w.feed(0); len(tokens) != c.want || w.longest() != c.want {
			t.Errorf("%q: %d of %d tokens at once, at most %d, want %d", c.scaling.Type, len(tokens), c.next, w.longest(), c.want)
		}
	}
}
