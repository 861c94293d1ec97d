package forecast

import (
	"errors"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// copiesGroup is a group of ranks with copies of the same weights.
type copiesGroup struct{ tensorops.DryGroup }

// TestWeightsOfAPair: with ZeRO-3 the forecast gathers the weights of a pair as often as the passes do that are recorded in turns, and not
// once for each pass.
func TestWeightsOfAPair(t *testing.T) {
	for _, c := range []struct {
		layers, recompute string
	}{
		{"1", "none"}, {"2", "none"}, {"5", "none"}, {"5", "full"},
	} {
		b := resolved(t, "model.family=qwen3_moe", "model.layers="+c.layers, "model.hidden=128", "model.kv_heads=4", "model.experts=8",
			"model.experts_per_token=2", "model.expert_ffn=64", "batch.sequences=8", "batch.microbatch=1", "parallel.data=4",
			"parallel.expert=2", "parallel.zero=3", "parallel.expert_overlap=true", "pipeline.schedule=none",
			"pipeline.recompute="+c.recompute)
		if d := b.DescribeZero(); !strings.Contains(d, "layer by layer") {
			t.Fatalf("%s layers: %s", c.layers, d)
		}
		all, err := recordGroups(b, Devices{Devices: 4, BytesPerS: 1e6}, []*Costs{unitCosts(1)})
		if err != nil {
			t.Fatal(err)
		}
		row, at := b.Table().Ranks[0], 0
		for at < len(row) && scheduler.Width(row, at) == 1 {
			at++
		}
		var lists [2][]step
		alone := 0
		for i := range lists {
			lists[i] = all[0].passes[chunkPass{int(row[at+i].Chunk), all[0].passOf(row[at+i])}]
			alone += gathers(lists[i])
		}
		steps, _ := inTurns(scheduler.Turns, lists[:]...)
		got, want := gathers(steps), gathersOf(t, b, row, at)
		if got != want || want == 0 || want >= alone {
			t.Errorf("%s layers, recompute %s: the pair gathers %d weights, want %d; its passes alone gather %d", c.layers, c.recompute,
				got, want, alone)
		}
		var ms float64
		for _, s := range steps {
			if s.dim == grid.Copies || s.dim == grid.ExpertCopies {
				ms += s.ms + s.underWay
			}
		}
		w := playPair(scheduler.Turns, lists).within
		if d := w[grid.Copies] + w[grid.ExpertCopies] - ms; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s layers: collectives among copies take %v ms of %v", c.layers, w, ms)
		}
	}
}

// gathers counts the weights that a list gathers.
func gathers(steps []step) (n int) {
	for _, s := range steps {
		if s.weight != 0 {
			n++
		}
	}
	return n
}

// gathersOf counts the weights that the pair at a position of a row gathers: a stage records the row as in a run.
func gathersOf(t *testing.T, b *plan.Plan, row []scheduler.Action, at int) (n int) {
	t.Helper()
	g, cfg := b.Grid(), b.Config()
	o := b.LayerOptions(0, func(grid.Dimension, int) tensorops.Group { return nil })
	o.MemoryBytes = 0
	o.Data = stages.DataParallel{Group: copiesGroup{tensorops.DryGroup{Members: g.Size(grid.Copies)}}, Zero: 3}
	o.Experts = stages.ExpertParallel{Group: tensorops.DryGroup{Members: g.Size(grid.Expert)},
		Copies: copiesGroup{tensorops.DryGroup{Members: g.Size(grid.ExpertCopies)}}, Rows: cfg.Batch.Microbatch * cfg.Model.Context,
		Overlap: true}
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(b.Model(), dry, b.Chunks(0), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	ids := make([]int32, cfg.Batch.Microbatch*cfg.Model.Context)
	var errs []error
	for i := 0; i < len(row); {
		l, width := dry.NewList(), scheduler.Width(row, i)
		var passes []func()
		for _, a := range row[i : i+width] {
			passes = append(passes, func() {
				mb := stages.Microbatch{Step: 1, Index: int(a.Microbatch), Sequences: cfg.Batch.Microbatch, Positions: cfg.Model.Context,
					Tokens: ids, Targets: ids, Train: true, Of: b.Table().Microbatches, Recompute: b.Recomputes()(0, int(a.Microbatch))}
				for _, out := range stages.Act(l, st, a, &mb) {
					l.Free(out)
				}
			})
		}
		stages.ActTogether(st, b.Table().OwnTurns(0, i), passes...)
		for _, op := range l.Ops() {
			if op.Kind == tensorops.KindCollective && i == at {
				if a := op.Collective(); a.What == tensorops.AllGather {
					if _, there := a.Group.(copiesGroup); there {
						n++
					}
				}
			}
		}
		errs = append(errs, tensorops.Run(dry, l))
		i += width
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return n
}
