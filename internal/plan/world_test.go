package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/world"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

const gridVocab = 40

// gridPlan plans a small model in a grid.
func gridPlan(t testing.TB, sets ...string) (*Plan, error) {
	t.Helper()
	cfg, err := config.Parse("grid.toml", []byte(`
run = {steps = 2}
model = {hidden = 32, context = 8, heads = 4, layers = 4}
data = {train = ["testdata/troupe.txt"]}
batch = {sequences = 12, microbatch = 1}
`), append([]string{"run.out=" + t.TempDir()}, sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(cfg, gridVocab, stages.Config{})
}

// spyGroups note what streams begin in their groups.
type spyGroups struct {
	Groups
	mu   sync.Mutex
	seen map[int][]string // by rank, in its order
}

type spyGroup struct {
	tensorops.Group
	spy  *spyGroups
	rank int
	dim  grid.Dimension
}

func (s *spyGroups) Of(rank int, d grid.Dimension) tensorops.Group {
	g := s.Groups.Of(rank, d)
	if g == nil {
		return nil
	}
	return spyGroup{g, s, rank, d}
}

func (g spyGroup) Start(op *tensorops.Op, done func(error)) {
	a := op.Collective()
	g.spy.mu.Lock()
	g.spy.seen[g.rank] = append(g.spy.seen[g.rank], described(g.dim, collective.SignatureOf(a).String(), a.Later))
	g.spy.mu.Unlock()
	g.Group.Start(op, done)
}

func described(d grid.Dimension, what string, later bool) string {
	if later {
		what += ", later"
	}
	return fmt.Sprintf("%v: %s", d, what)
}

// supposed is what the checker takes a rank to do in a step, in its groups.
func supposed(p *Plan, w *world.World, rank int) (all []string) {
	dims := make(map[string]grid.Dimension)
	for _, d := range GroupDimensions(p.grid) {
		dims[p.grid.Name(rank, d)] = d
	}
	for _, step := range w.Ranks[rank].Steps {
		for _, o := range step.Ops {
			if o.Group < 0 || w.Groups[o.Group].Name == "all ranks" {
				continue
			}
			all = append(all, described(dims[w.Groups[o.Group].Name], o.What, o.Later))
		}
	}
	return all
}

// gridData are samples of ids.
type gridData struct{ windows, context int }

func (d gridData) fill(tokens, targets []int32) error {
	for i := range tokens {
		tokens[i], targets[i] = int32(i%gridVocab), int32((i+1)%gridVocab)
	}
	return nil
}
func (d gridData) Train(_ int64, _ int, tokens, targets []int32) error {
	return d.fill(tokens, targets)
}
func (d gridData) EvalWindows() int                              { return d.windows }
func (d gridData) EvalLen(int) int                               { return d.context }
func (d gridData) EvalFill(_ int, tokens, targets []int32) error { return d.fill(tokens, targets) }

// shuffledTables are cases with tables that no generator makes: those of dualpipev after many exchanges of neighbors that the checker
// allows.
func shuffledTables(t *testing.T) (cases []string) {
	r := rand.New(rand.NewPCG(5, 8))
	for i := range 2 {
		table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 6})
		if err != nil {
			t.Fatal(err)
		}
		before := table.CSV()
		for range 400 {
			row := table.Ranks[r.IntN(2)]
			k := r.IntN(len(row) - 1)
			swap := func() {
				row[k], row[k+1] = row[k+1], row[k]
				row[k].Overlap, row[k+1].Overlap = row[k+1].Overlap, row[k].Overlap
			}
			swap()
			if report, err := scheduler.Check(table); err != nil || report.OutOfOrder.Any() {
				swap()
			}
		}
		if table.CSV() == before {
			t.Error("no exchange is allowed")
		}
		path := filepath.Join(t.TempDir(), fmt.Sprintf("shuffled%d.csv", i))
		if err := os.WriteFile(path, []byte(table.CSV()), 0o644); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, "parallel.data=2 parallel.expert=2 parallel.expert_overlap=true pipeline.stages=2 model.family=qwen3_moe "+
			"pipeline.schedule="+path)
	}
	return cases
}

// TestWorldIsWhatRanksDo: the collectives that the checker goes by are those that the streams of a run begin, in their
// order, in every group: of a validation, two steps and another validation.
func TestWorldIsWhatRanksDo(t *testing.T) {
	const windows = 3 // microbatches of a validation
	for _, c := range append(shuffledTables(t), []string{
		"parallel.data=2",
		"parallel.data=3 pipeline.stages=2 pipeline.schedule=zb-h1",
		"parallel.data=2 pipeline.stages=2 pipeline.schedule=gpipe parallel.zero=1",
		"parallel.data=2 pipeline.stages=2 pipeline.chunks=2 pipeline.schedule=breadth-first parallel.zero=2 batch.sequences=4 model.hidden=192",
		"parallel.tensor=2 pipeline.stages=2 pipeline.schedule=1f1b",
		"parallel.data=2 parallel.zero=3 pipeline.stages=2 pipeline.schedule=1f1b model.hidden=128 model.layers=12 batch.microbatch=2 batch.sequences=8",
		"parallel.data=2 parallel.zero=3 model.hidden=128 model.layers=8",
		"parallel.data=2 parallel.zero=3 parallel.tensor=2 model.hidden=192 model.layers=8 pipeline.recompute=full model.family=llama model.kv_heads=2 batch.sequences=4",
		"parallel.tensor=2 parallel.sequence=true pipeline.recompute=full",
		"parallel.tensor=2 parallel.data=2 pipeline.stages=2 pipeline.schedule=zb-h2 parallel.zero=1",
		"parallel.tensor=2 parallel.data=2 pipeline.stages=2 pipeline.chunks=2 pipeline.schedule=interleaved parallel.sequence=true parallel.order=dp-pp-tp model.tie_embeddings=true",
		"parallel.tensor=2 parallel.data=2 pipeline.stages=2 pipeline.chunks=2 pipeline.schedule=dualpipev model.family=llama model.kv_heads=2 batch.sequences=24",
		"parallel.tensor=4 parallel.sequence=true model.family=llama model.kv_heads=2 model.mtp_layers=1 pipeline.stages=2 pipeline.defer_weights=2",
		"parallel.tensor=[1,2] pipeline.stages=2 pipeline.schedule=1f1b parallel.data=2",
		"parallel.tensor=[1,2] pipeline.stages=2 pipeline.schedule=1f1b parallel.data=3 parallel.zero=1 optimizer.name=muon",
		"parallel.data=2 parallel.zero=3 model.hidden=128 model.layers=8 optimizer.name=muon",
		"parallel.tensor=[2,1,4] pipeline.stages=3 pipeline.schedule=zb-h1 parallel.sequence=true",
		"parallel.tensor=2 pipeline.stages=4 model.mtp_layers=1 model.layers=8 pipeline.layout=Ettt|tt|tt|tmL",
		"parallel.tensor=[2,4] pipeline.stages=2 pipeline.schedule=gpipe parallel.edges=scatter",
		"parallel.tensor=2 pipeline.stages=2 pipeline.chunks=2 pipeline.schedule=interleaved parallel.edges=broadcast model.mtp_layers=1",
		"parallel.tensor=2 parallel.data=3 parallel.zero=1 pipeline.stages=2 pipeline.schedule=1f1b pipeline.recompute=partial pipeline.recompute_keep=1",
		"parallel.tensor=2 parallel.data=2 pipeline.stages=2 pipeline.schedule=zb-h1 parallel.sequence=true model.family=qwen2_moe",
		"parallel.context=2",
		"parallel.context=4 pipeline.stages=2 pipeline.schedule=zb-h1 model.family=llama model.kv_heads=2 parallel.overlap=false",
		"parallel.context=2 parallel.data=3 pipeline.stages=2 pipeline.schedule=1f1b model.tie_embeddings=true parallel.order=cp-dp-pp",
		"parallel.context=2 parallel.tensor=[1,2] parallel.sequence=true parallel.data=2 pipeline.stages=2 pipeline.chunks=2 pipeline.schedule=zb-v parallel.zero=1",
		"parallel.context=2 parallel.zero=3 model.hidden=192 model.layers=8 pipeline.recompute=full",
		"parallel.data=4 parallel.expert=2 pipeline.stages=2 pipeline.schedule=zb-h1 model.family=qwen3_moe pipeline.recompute=full",
		"parallel.context=2 parallel.zero=1 model.family=gpt_oss",
		"parallel.data=2 parallel.expert=2 parallel.expert_overlap=true pipeline.stages=2 pipeline.schedule=1f1b model.family=gpt_oss",
		"parallel.data=2 parallel.tensor=2 parallel.expert=2 parallel.expert_overlap=true pipeline.stages=2 pipeline.schedule=1f1b " +
			"model.family=gpt_oss",
		"parallel.context=2 parallel.data=2 parallel.expert=4 pipeline.stages=2 pipeline.schedule=zb-h1 model.family=qwen3_moe " +
			"pipeline.recompute=full",
		"parallel.context=2 parallel.data=2 parallel.expert=2 parallel.expert_overlap=true parallel.order=dp-cp-pp pipeline.stages=2 " +
			"pipeline.schedule=1f1b model.family=qwen2_moe model.load_balancing_type=seq_aux_loss",
		"parallel.data=4 parallel.expert=2 parallel.zero=1 pipeline.stages=2 pipeline.schedule=zb-h1 model.family=qwen3_moe " +
			"optimizer.name=muon",
		"parallel.data=4 parallel.expert=2 parallel.zero=3 model.family=qwen3_moe model.hidden=128 model.expert_ffn=128 model.layers=8",
		"parallel.data=4 parallel.expert=2 parallel.zero=2 parallel.expert_overlap=true pipeline.stages=2 pipeline.schedule=1f1b " +
			"model.family=qwen3_moe model.hidden=128 model.expert_ffn=128",
		"parallel.data=4 parallel.expert=2 parallel.zero=3 parallel.expert_overlap=true pipeline.stages=2 pipeline.schedule=1f1b " +
			"model.family=qwen3_moe model.hidden=128 model.expert_ffn=128 model.layers=8 batch.sequences=32",
		"parallel.data=4 parallel.expert=2 parallel.zero=3 parallel.expert_overlap=true pipeline.stages=2 pipeline.chunks=2 " +
			"pipeline.schedule=dualpipev model.family=mixtral model.hidden=128 model.ffn=128 model.layers=8 batch.sequences=32 " +
			"pipeline.recompute=partial pipeline.recompute_keep=1",
		"parallel.data=2 parallel.expert=2 pipeline.stages=2 pipeline.chunks=2 pipeline.schedule=dualpipev model.family=mixtral " +
			"batch.sequences=24",
		"parallel.data=2 parallel.expert=2 parallel.expert_overlap=true pipeline.stages=2 pipeline.chunks=2 pipeline.schedule=dualpipev " +
			"model.family=mixtral batch.sequences=24",
		"parallel.data=4 parallel.expert=2 parallel.expert_overlap=true pipeline.stages=2 pipeline.schedule=1f1b model.family=qwen3_moe " +
			"pipeline.recompute=partial pipeline.recompute_keep=1 model.mtp_layers=1",
		"parallel.tensor=2 parallel.sequence=true parallel.data=4 parallel.expert=2 pipeline.stages=2 pipeline.schedule=zb-h1 " +
			"model.family=qwen3_moe",
		"parallel.tensor=2 parallel.data=2 parallel.expert=2 parallel.expert_overlap=true pipeline.stages=2 pipeline.schedule=1f1b " +
			"parallel.sequence=true model.family=qwen2_moe",
		"parallel.tensor=2 parallel.expert_tensor=1 model.family=qwen3_moe model.load_balancing_type=global_aux_loss " +
			"model.aux_loss_weight=0.1",
		"parallel.tensor=2 parallel.expert_tensor=1 parallel.expert=4 parallel.sequence=true parallel.data=2 pipeline.stages=2 " +
			"pipeline.schedule=zb-h1 model.family=qwen2_moe",
		"parallel.tensor=2 parallel.expert_tensor=1 parallel.expert=2 parallel.data=2 parallel.expert_overlap=true pipeline.stages=2 " +
			"pipeline.schedule=1f1b model.family=gpt_oss",
		"parallel.tensor=2 parallel.expert_tensor=1 parallel.expert=2 parallel.data=2 parallel.context=2 model.family=qwen3_moe " +
			"parallel.order=dp-pp-tp-cp pipeline.stages=2 pipeline.schedule=1f1b parallel.zero=1",
		"parallel.tensor=2 parallel.expert_tensor=1 parallel.expert=2 parallel.data=2 parallel.zero=3 model.family=qwen3_moe " +
			"model.hidden=128 model.expert_ffn=128 model.layers=8",
	}...) {
		t.Run(c, func(t *testing.T) {
			p, err := gridPlan(t, strings.Fields(c)...)
			if err != nil {
				t.Fatal(err)
			}
			for rank := range p.grid.World() {
				sameLists(t, p, rank)
			}
			report, err := p.CheckWorld(windows)
			if err != nil {
				t.Fatal(err)
			}
			if report.Collectives == 0 {
				t.Error("there are no collectives")
			}
			spy := &spyGroups{Groups: p.LocalGroups(), seen: make(map[int][]string)}
			s, err := p.Stages(windows, stages.InitWeights(5), false, spy)
			if err != nil {
				t.Fatal(err)
			}
			device, err := cpu.New(cpu.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer device.Close()
			s.Run, s.Device, s.Data, s.MicrobatchSize, s.Context, s.Sequences = uuid.New(), device,
				gridData{windows * p.cfg.Batch.Microbatch, p.cfg.Model.Context}, p.cfg.Batch.Microbatch, p.cfg.Model.Context, p.cfg.Batch.Sequences
			s.Rate, s.Steps = stages.Rate{LR: 1e-3, Warmup: 1, Steps: 2, Decay: "cosine"}, 2
			run, err := actors.Start(s)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-run.Done():
			case <-time.After(time.Minute):
				t.Fatalf("the run does not end:\n%v", run.Status())
			}
			if out := run.Wait(); out.Err != nil {
				t.Fatal(out.Err)
			}
			replicas, err := p.replicas(windows)
			if err != nil {
				t.Fatal(err)
			}
			train, err := p.world(replicas, false, actors.Alike(replicas))
			if err != nil {
				t.Fatal(err)
			}
			eval, err := p.world(replicas, true, false)
			if err != nil {
				t.Fatal(err)
			}
			for rank := range p.grid.World() {
				step, check := supposed(p, train, rank), supposed(p, eval, rank)
				want := slices.Concat(check, step, step, check)
				if got := spy.seen[rank]; !slices.Equal(got, want) {
					t.Errorf("rank %d began %d collectives, the checker supposes %d:\n%s", rank, len(got), len(want), firstDifference(got, want))
				}
			}
		})
	}
}

// sameLists records some microbatches of a rank's row, and all.
func sameLists(t *testing.T, p *Plan, rank int) {
	t.Helper()
	replicas, err := p.replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	table, of := replicas[p.grid.Coordinates(rank)[grid.Data]].Table, 0
	if actors.Alike(replicas) {
		of = table.Microbatches
	}
	groups := p.recordGroups()
	all, err := p.recordLists(rank, table, of, groups, everyMicrobatch)
	if err != nil {
		t.Fatal(err)
	}
	some, err := p.recordLists(rank, table, of, groups, p.someMicrobatches(p.stageOf(rank), table))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(all, some) {
		t.Errorf("rank %d: the lists of some microbatches are not those of all: %v, %v", rank, some, all)
	}
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("from the %dth on:\n  %q\nsupposed:\n  %q", i, got[min(i, len(got)):min(i+5, len(got))],
				want[min(i, len(want)):min(i+5, len(want))])
		}
	}
	return ""
}

// TestReplicasWithTablesOfTheirOwn: replicas whose tables differ train. Their gradients are added at the step's end;
// in the middle they would be in one order too, that of the chunks, whatever the table's. What they bring in another
// order is refused with the grid, the group and the ranks.
func TestReplicasWithTablesOfTheirOwn(t *testing.T) {
	p, err := gridPlan(t, "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=zb-v", "model.hidden=256",
		"model.tie_embeddings=false")
	if err != nil {
		t.Fatal(err)
	}
	replicas, err := p.replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	if !actors.Alike(replicas) {
		t.Fatal("replicas of one table are not alike")
	}
	own := *replicas[1].Table
	own.Ranks = slices.Clone(own.Ranks)
	own.Ranks[0] = swapLast(own.Ranks[0])
	if _, err := scheduler.Check(&own); err != nil {
		t.Fatal(err)
	}
	replicas[1].Table = &own
	if actors.Alike(replicas) {
		t.Error("replicas of two tables are alike")
	}
	for _, alike := range []bool{false, true} {
		w, err := p.world(replicas, false, alike)
		if err == nil {
			_, err = world.Check(w)
		}
		if err != nil {
			t.Errorf("gradients in the middle of the step, %v: %v", alike, err)
		}
		if !alike {
			continue
		}
		rank := p.grid.Rank(grid.Coordinates{grid.Data: 1})
		ops := sums(w.Ranks[rank], func(o world.Op) bool { return o.Later })
		if len(ops) < 2 {
			t.Fatalf("rank %d begins %d sums in the middle of the step", rank, len(ops))
		}
		*ops[0], *ops[len(ops)-1] = *ops[len(ops)-1], *ops[0]
		var f *world.Fault
		if _, err = world.Check(w); !errors.As(err, &f) || !errors.Is(err, world.ErrMismatch) && !errors.Is(err, world.ErrMixed) ||
			!slices.Equal(slices.Sorted(slices.Values(f.Ranks)), []int{0, 2}) || !strings.Contains(err.Error(), "grid tp 1 × cp 1 × pp 2 × dp 2") ||
			!strings.Contains(err.Error(), "group dp of pp 0") {
			t.Errorf("sums in another order: %v", err)
		}
	}
}

// sums are operations of a rank that replicas do together.
func sums(r world.Rank, which func(world.Op) bool) (ops []*world.Op) {
	for i := range r.Steps {
		for k := range r.Steps[i].Ops {
			if o := &r.Steps[i].Ops[k]; which(*o) {
				ops = append(ops, o)
			}
		}
	}
	return ops
}

// swapLast lets the last weight gradients of a rank's two chunks change places.
func swapLast(row []scheduler.Action) []scheduler.Action {
	row = slices.Clone(row)
	last := len(row) - 1
	for i := last - 1; i >= 0; i-- {
		if row[i].Type == row[last].Type && row[i].Chunk != row[last].Chunk {
			late := row[i]
			copy(row[i:], row[i+1:])
			row[last] = late
			return row
		}
	}
	return row
}

// TestNoCollectivesWhereOrdersAreLeft: a rank that may have to drop what is next has none in its row.
func TestNoCollectivesWhereOrdersAreLeft(t *testing.T) {
	for _, c := range []struct{ sets, says string }{
		{"pipeline.schedule=zb-h2 pipeline.post_validation=true", "post_validation = false"},
	} {
		p, err := gridPlan(t, append(strings.Fields(c.sets), "parallel.data=2", "pipeline.stages=2")...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.CheckWorld(2); err != nil {
			t.Errorf("%s: %v", c.sets, err)
		}
		p.cfg.Parallel.Tensor = []int{2} // which config refuses
		if p.grid, err = grid.New(p.cfg.GridSizes()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.CheckWorld(2); !errors.Is(err, world.ErrMismatch) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s with tensor groups: %v", c.sets, err)
		}
	}
}

// TestOwnTableInAGrid: a table of the user's own is each replica's, and is checked with all of them.
func TestOwnTableInAGrid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.csv")
	write := func(microbatches int) {
		table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.ZBH1, Ranks: 2, Chunks: 1, Microbatches: microbatches})
		if err == nil {
			err = os.WriteFile(path, []byte(table.CSV()), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		microbatches int
		data         string
		says         string
	}{
		{6, "parallel.data=2", ""},
		{4, "parallel.data=3", ""},
		{12, "parallel.data=2",
			"own.csv has 12 microbatches, but batch.sequences / batch.microbatch is 12, and each of 2 replicas has 6 of them"},
		{3, "parallel.data=5", "5 replicas must have equally many microbatches"},
	} {
		write(c.microbatches)
		p, err := gridPlan(t, "parallel.tensor=2", c.data, "pipeline.stages=2", "pipeline.schedule="+path)
		var report *world.Report
		if err == nil {
			report, err = p.CheckWorld(2)
		}
		switch {
		case c.says == "" && (err != nil || report.Collectives == 0):
			t.Errorf("%d microbatches, %s: %+v, %v", c.microbatches, c.data, report, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%d microbatches, %s: error %v, want %q", c.microbatches, c.data, err, c.says)
		}
	}
}
