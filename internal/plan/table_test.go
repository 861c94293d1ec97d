package plan_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
)

// tableFile writes a table as a user would.
func tableFile(t testing.TB, s scheduler.Spec) (path string) {
	t.Helper()
	table, err := scheduler.Generate(s)
	must(t, err)
	path = filepath.Join(t.TempDir(), "own.csv")
	must(t, os.WriteFile(path, []byte(table.CSV()), 0o644))
	return path
}

// TestOwnTable: a user's table is taken where it has the configuration's sizes, else the
// error says which it hasn't.
func TestOwnTable(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.csv")
	must(t, os.WriteFile(broken, []byte("0F0,tea\n"), 0o644))
	for _, tt := range []struct {
		name string
		path string
		want string // "": it is taken
	}{
		{"as it is", tableFile(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), ""},
		{"other ranks", tableFile(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: 4}),
			"has 3 rows, one for each stage, but pipeline.stages is 2"},
		{"other microbatches", tableFile(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 5}),
			"has 5 microbatches, but batch.sequences / batch.microbatch is 4"},
		{"other chunks", tableFile(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: 4}), "has 4 chunks in placement"},
		{"forwards only", tableFile(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4, ForwardOnly: true}), "has no backward passes"},
		{"no table", broken, "broken.csv"},
		{"no file", filepath.Join(t.TempDir(), "none.csv"), "none.csv"},
	} {
		p, err := plan.Resolve(fromConfig(t, "", "pipeline.stages=2", "pipeline.chunks=1", "pipeline.schedule="+tt.path), nil)
		if tt.want == "" {
			must(t, err)
			if text, err := os.ReadFile(tt.path); err != nil || p.Table().CSV() != string(text) {
				t.Errorf("%s: %v, the table is\n%s", tt.name, err, p.Table().CSV())
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "pipeline.schedule: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
	}
}

// TestChunksOfOwnTable: where nobody gives their number, it is the table's.
func TestChunksOfOwnTable(t *testing.T) {
	for schedule, chunks := range map[string]int{scheduler.OneFOneB: 1, scheduler.Interleaved: 2, scheduler.ZBV: 2, scheduler.UShape: 2,
		scheduler.ZB1P: 3} {
		path := tableFile(t, scheduler.Spec{Schedule: schedule, Ranks: 2, Chunks: chunks, Microbatches: 4})
		cfg := fromConfig(t, "", "pipeline.stages=2", "model.layers=8", "pipeline.schedule="+path)
		p, err := plan.Resolve(cfg, nil)
		must(t, err)
		if got := p.Config().Pipeline.Chunks; got != chunks || p.Spec().Chunks != chunks || cfg.Pipeline.Chunks != 1 {
			t.Errorf("%s: %d chunks on each rank, want %d; the caller's configuration has %d", schedule, got, chunks, cfg.Pipeline.Chunks)
		}
		// Another process reads what this one has resolved.
		stored, err := config.ParseStored("stored", p.Config().TOML())
		must(t, err)
		text, err := os.ReadFile(path)
		must(t, err)
		again, err := plan.NewOf(stored, p.Model().Config, text)
		must(t, err)
		if again.Digest() != p.Digest() {
			t.Errorf("%s: another process has another plan", schedule)
		}
	}
}

// TestCostsDecide: layers are spread by what they are said to cost.
func TestCostsDecide(t *testing.T) {
	layers := func(cost plan.CostFunc) (n []int) {
		p, err := plan.Resolve(fromConfig(t, "", "pipeline.stages=2", "model.layers=8"), cost)
		must(t, err)
		for _, symbols := range p.Layout().Chunks {
			n = append(n, len(symbols))
		}
		return n
	}
	even := layers(func(scheduler.Symbol, scheduler.Type) float64 { return 1 })
	head := layers(func(s scheduler.Symbol, _ scheduler.Type) float64 {
		if s == scheduler.SymbolLoss {
			return 4
		}
		return 1
	})
	if even[0] != 5 || even[1] != 5 || head[1] >= even[1] {
		t.Errorf("layers that cost the same are spread as %v, with a head of four as %v", even, head)
	}
}
