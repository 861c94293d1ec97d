package mesh_test

import (
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// virtual is a device that computes nothing: its lists complete at once. Its tensors have memory, so that they can be sent.
type virtual struct{ memory *tensorops.Memory }

func newVirtual() *virtual { return &virtual{tensorops.NewHostMemory(0)} }

func (*virtual) Name() string                    { return "virtual" }
func (*virtual) Path() string                    { return "none" }
func (d *virtual) Memory() tensorops.MemoryStats { return d.memory.Stats() }
func (d *virtual) Close()                        { d.memory.Close() }
func (d *virtual) NewStream(name string) tensorops.Stream {
	return &virtualStream{arena: d.memory.NewArena(name)}
}

type virtualStream struct {
	arena tensorops.Arena
	list  *tensorops.List // for use again
}

func (s *virtualStream) Arena() tensorops.Arena { return s.arena }
func (s *virtualStream) Close()                 {}

func (s *virtualStream) NewList() *tensorops.List {
	if l := s.list; l != nil {
		s.list = nil
		return l
	}
	return tensorops.NewList(s.arena, nil)
}

func (s *virtualStream) Submit(l *tensorops.List, done func(error)) {
	err := l.Err()
	l.Complete()
	l.Reset()
	s.list = l
	done(err)
}

// nothing is a stage that computes nothing. Its outputs have four numbers.
type nothing struct{ rank, last int }

func (s *nothing) pass(l *tensorops.List, in []tensorops.Tensor, out bool) []tensorops.Tensor {
	l.Free(stages.Only(in))
	if !out {
		return nil
	}
	return []tensorops.Tensor{l.Alloc(tensorops.Float32, 1, 1, 4)}
}

func (s *nothing) NeedsTokens(chunk int) bool  { return chunk == 0 }
func (s *nothing) ComputesLoss(chunk int) bool { return chunk == s.last }
func (s *nothing) Forward(l *tensorops.List, chunk int, _ *stages.Microbatch, in ...tensorops.Tensor) []tensorops.Tensor {
	return s.pass(l, in, chunk < s.last)
}
func (s *nothing) InputGrad(l *tensorops.List, chunk, _ int, dy ...tensorops.Tensor) []tensorops.Tensor {
	return s.pass(l, dy, chunk > 0)
}
func (s *nothing) Backward(l *tensorops.List, chunk, _ int, dy ...tensorops.Tensor) []tensorops.Tensor {
	return s.pass(l, dy, chunk > 0)
}
func (s *nothing) WeightGrad(*tensorops.List, int, int) {}
func (s *nothing) Finish(int, int)                      {}
func (s *nothing) Report(_, index int) stages.Report {
	return stages.Report{Sum: float64(index), Targets: 1}
}
func (s *nothing) NeedsTargets(chunk int) bool      { return chunk == s.last }
func (s *nothing) Fields(int) []string              { return nil }
func (s *nothing) NeedsStarts(int) bool             { return false }
func (s *nothing) Outputs(int, int) []stages.Output { return nil }
func (s *nothing) Verify(int) error                 { return nil }
func (s *nothing) Close() error                     { return nil }
func (s *nothing) CompleteInput(_ *tensorops.List, _ int, _ *stages.Microbatch, t tensorops.Tensor) tensorops.Tensor {
	return t
}
func (s *nothing) CompleteGrad(_ *tensorops.List, _, _ int, t tensorops.Tensor) tensorops.Tensor {
	return t
}
func (s *nothing) TiedGrads(*tensorops.List, []stages.TensorPlace) []stages.TiedGrad { return nil }
func (s *nothing) WantsTied() int                                                    { return 0 }
func (s *nothing) TakeTied(stages.TiedGrad) error                                    { return nil }
func (s *nothing) GradNorms(*tensorops.List)                                         {}
func (s *nothing) Apply(*tensorops.List, stages.Update)                              {}
func (s *nothing) ClearGrads(*tensorops.List)                                        {}
func (s *nothing) SpeculativeApply(*tensorops.List, stages.Update)                   {}
func (s *nothing) Commit(*tensorops.List)                                            {}
func (s *nothing) Rollback(*tensorops.List, *stages.Update)                          {}
func (s *nothing) AbortMicrobatches(*tensorops.List)                                 {}
func (s *nothing) Save(*tensorops.List, tensorops.Arena) []stages.Saved              { return nil }
func (s *nothing) Norms(to []stages.Norm) []stages.Norm {
	return append(to, stages.Norm{Param: s.rank, Squared: 1})
}

// zeros is a Source of zeros.
type zeros struct{}

func (zeros) Train(_ int64, _ int, tokens, targets []int32) error {
	clear(tokens)
	clear(targets)
	return nil
}
func (zeros) EvalWindows() int                     { return 0 }
func (zeros) EvalLen(int) int                      { return 0 }
func (zeros) EvalFill(int, []int32, []int32) error { return nil }

// virtualRun is a run of stages that compute nothing.
func virtualRun(table *scheduler.Table, steps int64) actors.Spec {
	return actors.Spec{
		Build: func(rank int, _ tensorops.Stream) (actors.Compute, error) {
			return &nothing{rank: rank, last: table.NumChunks - 1}, nil
		},
		Device: newVirtual(), Table: table,
		Data: zeros{}, MicrobatchSize: 1, Context: 4, Sequences: table.Microbatches,
		Rate: stages.Rate{LR: 1, MinLR: 1, Decay: "constant"}, Steps: steps,
	}
}
