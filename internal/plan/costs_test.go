package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/scheduler"
)

// TestFrozenLayout: a stage of frozen layers, which have less to do, gets more of them.
func TestFrozenLayout(t *testing.T) {
	// A layer's step costs 3, a frozen one's 2, and 1 where everything before it is frozen too.
	costs := func(s scheduler.Symbol, pass scheduler.Type) float64 {
		if s != scheduler.SymbolLayer {
			return 0
		}
		return scheduler.UnitCosts(0, scheduler.Action{Type: pass})
	}
	for _, tt := range []struct{ freeze, want string }{
		{`[]`, "Et*4|t*4,L"},
		{`["embed"]`, "Et*4|t*4,L"},
		{`["embed", "0-3"]`, "Et*5|t*3,L"}, // 4 + 3, and 9; with another 10 and 6
		{`["embed", "0-5"]`, "Et*6|ttL"},   // 6 and 6
		{`["6-7", "head"]`, "Et*4|t*4,L"},  // 12, and 10
		{`["4-7"]`, "Et*3|t*5,L"},          // 9, and 3 + 8
		{`["2-7"]`, "Et*3|t*5,L"},          // 8 and 10
		{`["embed", "0-6"]`, "Et*5|t*3,L"}, // 5, and 2 + 3
	} {
		t.Run(tt.freeze, func(t *testing.T) {
			p, err := Resolve(frozenConfig(t, "pipeline.stages=2", "model.freeze="+tt.freeze), costs)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Layout().String(); got != tt.want {
				t.Errorf("layout %s, want %s", got, tt.want)
			}
		})
	}
}

func frozenConfig(t *testing.T, sets ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("frozen.toml",
		[]byte("[model]\nlayers = 8\nhidden = 16\nheads = 4\ncontext = 8\nvocab = 40\n[data]\ntrain = [\"x\"]\n[batch]\nsequences = 8\nmicrobatch = 1\n"), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestFrozenSchedules: every schedule takes layers that cost next to nothing, and a rank's share
// of the work is what its layers do.
func TestFrozenSchedules(t *testing.T) {
	for _, name := range scheduler.Schedules() {
		if name == scheduler.None {
			continue
		}
		t.Run(name, func(t *testing.T) {
			sets := []string{"pipeline.stages=2", "pipeline.schedule=" + name, `model.freeze=["embed", "0-5"]`}
			switch name {
			case scheduler.Interleaved, scheduler.ZB1P, scheduler.BreadthFirst:
				sets = append(sets, "pipeline.chunks=2")
			}
			p, err := Resolve(frozenConfig(t, sets...), nil)
			if err != nil {
				t.Fatal(err)
			}
			of := p.LayerCosts(p.layerCost())
			for layer := range p.model.Symbols() {
				back := of(layer, scheduler.I) + of(layer, scheduler.W) + of(layer, scheduler.B)
				if frozen := layer <= 6; frozen != (back == 0) {
					t.Errorf("layer %d: frozen %v, and its backward costs %v", layer, frozen, back)
				}
			}
			if work := p.RankFLOPs(); !(work[0] > 0 && work[1] > 0) {
				t.Errorf("the ranks' work is %v", work)
			}
			if text := fmt.Sprint(p.Layout()); !strings.HasPrefix(text, "E") {
				t.Error(text)
			}
		})
	}
}

// TestFrozenCopy: a checkpoint's copy has two bytes of a weight that is held in bfloat16, four of
// one that is trained, and of its moments.
func TestFrozenCopy(t *testing.T) {
	// The head is trained, with the last norm; of a frozen layer the norms are float32.
	sets := []string{"model.family=llama", "model.tie_embeddings=false", `model.freeze=["embed", "0-7"]`}
	const norms, trained = 8 * 2 * 16, 40*16 + 16
	for dtype, frozenBytes := range map[string]int64{"float32": 4, "bfloat16": 2} {
		p, err := Resolve(frozenConfig(t, append(sets, "device.dtype="+dtype)...), nil)
		if err != nil {
			t.Fatal(err)
		}
		frozen := p.model.Parameters() - p.model.Trained() - norms
		want := frozenBytes*frozen + 4*norms + 3*4*trained
		if got, err := p.checkpointBytes(); err != nil || got != want || p.model.Trained() != trained {
			t.Errorf("%s: a copy takes %d bytes, want %d (%d weights are trained), %v", dtype, got, want, p.model.Trained(), err)
		}
	}
}
