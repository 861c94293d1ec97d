package actors_test

import (
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// fake is a Compute without a model: its tensors have a few bytes and hold
// nothing over, so that whatever is left in use was leaked by the actors. The
// embedding and the head share a weight when they are on different ranks.
type fake struct {
	rank, last int // last: chunk
	tied       bool
	spin       time.Duration // of every action
	hook       hook
	other      tensorops.Tensor // the other use's gradient
}

// hook is called when an action, or another part of a step, is recorded. It may
// fail the list, record a collective, or panic.
type hook func(l *tensorops.List, rank int, what string, chunk, index int)

func (f *fake) record(l *tensorops.List, what string, chunk, index int, in []tensorops.Tensor, out bool) []tensorops.Tensor {
	l.Free(stages.Only(in))
	if f.hook != nil {
		f.hook(l, f.rank, what, chunk, index)
	}
	if f.spin > 0 {
		l.Spin(f.spin)
	}
	if !out {
		return nil
	}
	return []tensorops.Tensor{l.Alloc(tensorops.Float32, 1, 1, 4)}
}

func (f *fake) NeedsTokens(chunk int) bool  { return chunk == 0 }
func (f *fake) NeedsStarts(int) bool        { return false }
func (f *fake) ComputesLoss(chunk int) bool { return chunk == f.last }
func (f *fake) NeedsTargets(chunk int) bool { return chunk == f.last }
func (f *fake) Fields(int) []string         { return nil }

func (f *fake) Forward(l *tensorops.List, chunk int, mb *stages.Microbatch, in ...tensorops.Tensor) []tensorops.Tensor {
	return f.record(l, "F", chunk, mb.Index, in, chunk < f.last)
}

func (f *fake) InputGrad(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	return f.record(l, "I", chunk, index, dy, chunk > 0)
}

func (f *fake) Backward(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	return f.record(l, "B", chunk, index, dy, chunk > 0)
}

func (f *fake) WeightGrad(l *tensorops.List, chunk, index int) {
	f.record(l, "W", chunk, index, nil, false)
}

func (f *fake) Finish(int, int) {}

func (f *fake) Report(_, index int) stages.Report {
	return stages.Report{Sum: float64(index), Targets: 1}
}

func (f *fake) Outputs(int, int) []stages.Output { return nil }
func (f *fake) Verify(int) error                 { return nil }
func (f *fake) Close() error                     { return nil }

func (f *fake) CompleteInput(_ *tensorops.List, _ int, _ *stages.Microbatch, t tensorops.Tensor) tensorops.Tensor {
	return t
}
func (f *fake) CompleteGrad(_ *tensorops.List, _, _ int, t tensorops.Tensor) tensorops.Tensor {
	return t
}

func (f *fake) TiedGrads(l *tensorops.List, _ []stages.TensorPlace) []stages.TiedGrad {
	g := l.Alloc(tensorops.Float32, 4)
	l.Fill(g, 1)
	f.call(l, "tied")
	return []stages.TiedGrad{{Grad: g}}
}

func (f *fake) WantsTied() int {
	if f.tied && !f.other.Valid() {
		return 1
	}
	return 0
}

func (f *fake) TakeTied(g stages.TiedGrad) error {
	f.other = g.Grad
	return nil
}

func (f *fake) GradNorms(l *tensorops.List) {
	l.Free(f.other)
	f.other = tensorops.Tensor{}
	f.call(l, "norms")
}

func (f *fake) Norms(to []stages.Norm) []stages.Norm {
	return append(to, stages.Norm{Param: f.rank, Squared: 1})
}

func (f *fake) Apply(l *tensorops.List, u stages.Update) { f.call(l, "apply") }
func (f *fake) ClearGrads(l *tensorops.List)             { f.call(l, "clear") }

func (f *fake) SpeculativeApply(l *tensorops.List, _ stages.Update) { f.call(l, "speculative apply") }
func (f *fake) Commit(l *tensorops.List)                            { f.call(l, "commit") }
func (f *fake) Rollback(l *tensorops.List, _ *stages.Update)        { f.call(l, "rollback") }
func (f *fake) AbortMicrobatches(l *tensorops.List)                 { f.call(l, "abort") }

func (f *fake) Save(l *tensorops.List, _ tensorops.Arena) []stages.Saved {
	f.call(l, "save")
	return []stages.Saved{{Name: "w", Index: f.rank, Shape: []int{1}, Data: []float32{1}}}
}

func (f *fake) call(l *tensorops.List, what string) {
	if f.hook != nil {
		f.hook(l, f.rank, what, -1, -1)
	}
}

// fakeRun is a run of fakes.
type fakeRun struct {
	table    *scheduler.Table
	evalLens []int
	threads  int
	steps    int64
	spin     time.Duration
	hook     hook
	untied   bool // embedding and head have a weight each
}

func (r fakeRun) spec(t testing.TB, l *log) actors.Spec {
	t.Helper()
	last := r.table.NumChunks - 1
	tied := slices.Compact([]int{r.table.RankOf(0), r.table.RankOf(last)})
	s := actors.Spec{
		Device: newDevice(t, r.threads),
		Build: func(rank int, _ tensorops.Stream) (actors.Compute, error) {
			return &fake{rank: rank, last: last, tied: !r.untied && len(tied) > 1 && slices.Contains(tied, rank), spin: r.spin, hook: r.hook}, nil
		},
		TiedRanks: tied,
		Table:     r.table,
		Data:      randomText{19, r.evalLens}, MicrobatchSize: 1, Context: 4, Sequences: r.table.Microbatches,
		Rate:  stages.Rate{LR: 1, MinLR: 1, Decay: "constant"},
		Steps: r.steps, OnEvent: l.event, WriteCheckpoint: l.write,
	}
	if len(r.evalLens) > 0 {
		s.EvalTable = evalTable(t, r.table, len(r.evalLens))
	}
	return s
}
