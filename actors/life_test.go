package actors_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"weak"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// hooked does something when a backward of its rank is recorded, the n-th time.
type hooked struct {
	actors.Compute
	n  int
	do func(l *tensorops.List)
}

func (m *hooked) count(l *tensorops.List) {
	if m.n--; m.n == 0 {
		m.do(l)
	}
}

func (m *hooked) Backward(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	out := m.Compute.Backward(l, chunk, index, dy...)
	m.count(l)
	return out
}

func (m *hooked) InputGrad(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	out := m.Compute.InputGrad(l, chunk, index, dy...)
	m.count(l)
	return out
}

// trainings are real models that hold all kinds of tensors, and how they run.
func trainings(t testing.TB) map[string]func(l *log) actors.Spec {
	const m = sequences / microbatchSize
	plain := func(model stages.Config, table *scheduler.Table, cuts []int) training {
		return training{model: small(model), threads: 2, steps: 6, table: table, cuts: cuts, evalLens: []int{6, 4}}
	}
	of := func(tr training, change func(*actors.Spec)) func(l *log) actors.Spec {
		return func(l *log) actors.Spec {
			s := tr.spec(t, l)
			s.CheckpointEvery = 2
			change(&s)
			return s
		}
	}
	two := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m})
	zbv := generate(t, scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2, Microbatches: m})
	recomputed := plain(families[1], zbv, []int{1, 2, 4})
	recomputed.recompute = func(_, microbatch int) bool { return microbatch%2 == 1 }
	predicting := families[0]
	predicting.MTPLayers, predicting.MTPWeight = 1, 0.3
	nothing := func(*actors.Spec) {}
	return map[string]func(l *log) actors.Spec{
		"tied, with dropout":     of(plain(families[0], two, []int{2}), nothing),
		"some recomputed":        of(recomputed, nothing),
		"multi-token prediction": of(plain(predicting, two, []int{2}), nothing),
		"post-validation": of(plain(families[0], generate(t, scheduler.Spec{Schedule: scheduler.ZBH2, Ranks: 3, Chunks: 1, Microbatches: m}),
			[]int{1, 3}),
			func(s *actors.Spec) { s.PostValidate, s.ClipNorm, s.EvalEvery, s.CheckpointEvery = true, 0, 0, 0 }),
		"between devices": of(plain(families[0], two, []int{2}),
			func(s *actors.Spec) { s.Device, s.Devices = nil, placement(t, "Aa") }),
	}
}

// TestNothingIsLeft: however a run ends, its tensors' memory is given back when Wait
// returns, and so is what it took beside its devices. A tensor that is under way then may
// still be released.
func TestNothingIsLeft(t *testing.T) {
	const early, late = 5, 25 // backwards of a rank: in step 1, in step 2 or later
	for _, end := range []struct {
		name   string
		change func(s *actors.Spec, run **actors.Run)
		err    error // nil: none
	}{
		{"finished", nil, nil},
		{"stopped", func(s *actors.Spec, run **actors.Run) {
			atBackward(s, 0, late, func(*tensorops.List) { (*run).Stop() })
			s.Steps = 1 << 40
		}, nil},
		{"killed", func(s *actors.Spec, run **actors.Run) {
			atBackward(s, 0, late, func(*tensorops.List) { (*run).Kill() })
			s.Steps = 1 << 40
		}, actors.ErrKilled},
		{"a list is refused", func(s *actors.Spec, _ **actors.Run) {
			atBackward(s, 1, late, func(l *tensorops.List) { l.Fail(errBoom) })
		}, errBoom},
		{"recording panics", func(s *actors.Spec, _ **actors.Run) {
			atBackward(s, 1, early, func(l *tensorops.List) {
				l.Alloc(tensorops.Float32, 1000)
				panic(errBoom)
			})
		}, errBoom},
		{"a stage panics twice", func(s *actors.Spec, run **actors.Run) {
			atBackward(s, 0, early, func(l *tensorops.List) {
				x := l.Alloc(tensorops.Float32, 4)
				x.Release()
				(*run).Tell("stage 0", &actors.Transfer{Tensor: x}) // to release it again panics
				panic(errBoom)
			})
		}, errBoom},
		{"a stage cannot be made", func(s *actors.Spec, _ **actors.Run) {
			whole := s.Build
			s.Build = func(rank int, st tensorops.Stream) (actors.Compute, error) {
				c, err := whole(rank, st)
				if rank == 1 {
					return nil, errBoom
				}
				return c, err
			}
		}, errBoom},
		{"making a stage panics", func(s *actors.Spec, _ **actors.Run) {
			whole := s.Build
			s.Build = func(rank int, st tensorops.Stream) (actors.Compute, error) {
				_, _ = whole(rank, st)
				panic(errBoom)
			}
		}, errBoom},
		{"no text", func(s *actors.Spec, _ **actors.Run) {
			s.Data = badText{s.Data.(randomText), 2, func() error { return errBoom }}
		}, errBoom},
		{"a bad token", func(s *actors.Spec, _ **actors.Run) {
			s.Data = strangeText{s.Data}
		}, tensorops.ErrToken},
		{"no checkpoint", func(s *actors.Spec, _ **actors.Run) {
			s.WriteCheckpoint = func(context.Context, trainstate.State, []stages.Saved, bool) (string, error) { return "", errBoom }
		}, errBoom},
	} {
		for name, spec := range trainings(t) {
			t.Run(fmt.Sprintf("%s, %s", end.name, name), func(t *testing.T) {
				s := spec(&log{})
				devicesOwn := goleak.IgnoreCurrent()
				var run *actors.Run
				if end.change != nil {
					end.change(&s, &run)
				}
				begun, whole := make(chan struct{}), s.Build
				var underWay []*actors.Transfer
				s.Build = func(rank int, st tensorops.Stream) (actors.Compute, error) {
					<-begun
					if rank == 0 {
						underWay = append(underWay, &actors.Transfer{Tensor: newTensor(t, st)}, &actors.Transfer{Tensor: newTensor(t, st)})
					}
					return whole(rank, st)
				}
				run = start(t, s)
				close(begun)
				if out := wait(t, run); !errors.Is(out.Err, end.err) || out.Stopped != (end.name == "stopped") {
					t.Errorf("the run ends with %+v, want %v", out, end.err)
				}
				goleak.VerifyNone(t, devicesOwn)
				for _, m := range underWay {
					run.Tell("stage 1", m)
				}
				underWay[0].Tensor.Release()
				devices := s.Devices
				if devices == nil {
					devices = []tensorops.Device{s.Device}
				}
				for i, d := range devices {
					if m := d.Memory(); m.InUse != 0 || m.Pooled != 0 {
						t.Errorf("device %d: %+v are left", i, m)
					}
				}
				for what, m := range map[string]tensorops.MemoryStats{"host transfers": run.HostTransfers(), "copies": run.Copies()} {
					if m.InUse != 0 || m.Pooled != 0 {
						t.Errorf("%s: %+v are left", what, m)
					}
				}
			})
		}
	}
}

// atBackward does something at the n-th backward of a rank.
func atBackward(s *actors.Spec, rank, n int, do func(l *tensorops.List)) {
	whole := s.Build
	s.Build = func(r int, st tensorops.Stream) (actors.Compute, error) {
		c, err := whole(r, st)
		if r != rank || err != nil {
			return c, err
		}
		return &hooked{c, n, do}, nil
	}
}

// strangeText is a Source whose second step has a token that no vocabulary has.
type strangeText struct{ actors.Source }

func (s strangeText) Train(step int64, index int, tokens, targets []int32) error {
	err := s.Source.Train(step, index, tokens, targets)
	if step == 2 {
		tokens[0] = 1 << 20
	}
	return err
}

// TestEndedRunKeepsNoData: a run that has ended may be kept, for its status and outcome;
// the text that it read is not kept by that.
func TestEndedRunKeepsNoData(t *testing.T) {
	type large struct {
		randomText
		_ [1 << 20]byte
	}
	begin := func() (*actors.Run, weak.Pointer[large]) {
		text := &large{randomText: randomText{vocab: 19}}
		spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 2}.spec(t, &log{})
		spec.Data = text
		return start(t, spec), weak.Make(text)
	}
	run, kept := begin()
	if out := wait(t, run); out.Err != nil {
		t.Fatal(out.Err)
	}
	eventually(t, run, "the end of what keeps the text", func() bool { // the last goroutines may be ending yet
		runtime.GC()
		return kept.Value() == nil
	})
	if s := run.Status(); s.Actors[0].Doing != event.Finished {
		t.Errorf("%v", s)
	}
}
