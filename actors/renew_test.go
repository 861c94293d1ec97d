package actors_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// moments counts what the stages of a run record, and ends the attempt at one of these moments.
type moments struct {
	left    atomic.Int64 // until the attempt ends
	end     atomic.Pointer[func()]
	actions atomic.Int64
}

func (m *moments) next() {
	if m.left.Add(-1) == 0 {
		if end := m.end.Load(); end != nil {
			(*end)()
		}
	}
}

// watched is a stage that reports each part of a step that it records, and whose norm is no number in some steps.
type watched struct {
	*stages.Stage
	m      *moments
	spoilt []int64
	step   int64
}

func (w *watched) Forward(l *tensorops.List, chunk int, mb *stages.Microbatch, in ...tensorops.Tensor) []tensorops.Tensor {
	w.m.actions.Add(1)
	w.m.next()
	w.step = mb.Step
	return w.Stage.Forward(l, chunk, mb, in...)
}

func (w *watched) InputGrad(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	w.m.actions.Add(1)
	w.m.next()
	return w.Stage.InputGrad(l, chunk, index, dy...)
}

func (w *watched) Backward(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	w.m.actions.Add(1)
	w.m.next()
	return w.Stage.Backward(l, chunk, index, dy...)
}

func (w *watched) WeightGrad(l *tensorops.List, chunk, index int) {
	w.m.actions.Add(1)
	w.m.next()
	w.Stage.WeightGrad(l, chunk, index)
}

func (w *watched) TiedGrads(l *tensorops.List, to []stages.TensorPlace) []stages.TiedGrad {
	w.m.next()
	return w.Stage.TiedGrads(l, to)
}

func (w *watched) GradNorms(l *tensorops.List) {
	w.m.next()
	w.Stage.GradNorms(l)
}

func (w *watched) Norms(to []stages.Norm) []stages.Norm {
	w.m.next()
	first := len(to)
	if to = w.Stage.Norms(to); slices.Contains(w.spoilt, w.step) && len(to) > first {
		to[first].Squared = math.NaN()
	}
	return to
}

func (w *watched) Apply(l *tensorops.List, u stages.Update) {
	w.m.next()
	w.Stage.Apply(l, u)
}

func (w *watched) SpeculativeApply(l *tensorops.List, u stages.Update) {
	w.m.next()
	w.Stage.SpeculativeApply(l, u)
}

func (w *watched) Commit(l *tensorops.List) {
	w.m.next()
	w.Stage.Commit(l)
}

func (w *watched) Rollback(l *tensorops.List, u *stages.Update) {
	w.m.next()
	w.Stage.Rollback(l, u)
}

func (w *watched) Save(l *tensorops.List, to tensorops.Arena) []stages.Saved {
	w.m.next()
	return w.Stage.Save(l, to)
}

// renewed is a training whose attempts end at random moments. The next attempt adopts all stages but one, whose state comes from
// elsewhere.
type renewed struct {
	training
	clip         float64
	spoilt       []int64
	postValidate bool
	every        int64 // steps between checkpoints
	between      bool  // the attempts end between two orders
	// shadowed gives each rank a shadow, from which the lost one gets its state; shadows counts how often it has.
	shadowed bool
	shadows  *int
}

func (r renewed) spec(t *testing.T, l *log, m *moments) actors.Spec {
	r.wrap = func(_ int, c actors.Compute) actors.Compute {
		return &watched{Stage: c.(*stages.Stage), m: m, spoilt: r.spoilt}
	}
	s := r.training.spec(t, l)
	s.ClipNorm, s.PostValidate, s.CheckpointEvery = r.clip, r.postValidate, r.every
	if r.shadowed {
		s.Shadows = r.ring()
	}
	return s
}

var errLost = errors.New("lost")

// run trains to the end through renewals. known has the state after each step.
func (r renewed) run(t *testing.T, seed uint64, known []save) (l *log, m *moments, renewals int) {
	l, m = &log{}, &moments{}
	random := rand.New(rand.NewPCG(seed, 1))
	spec := r.spec(t, l, m)
	build, memory := spec.Build, spec.Device
	r.wrap = func(_ int, c actors.Compute) actors.Compute {
		return &watched{Stage: c.(*stages.Stage), m: m, spoilt: r.spoilt}
	}
	spec.Run, spec.Keep = uuid.New(), func([]int) error { return nil }
	var adopted []*actors.Kept
	for {
		m.left.Store(1 + random.Int64N(90))
		m.end.Store(nil)
		run, lost := start(t, spec), random.IntN(r.table.NumRanks())
		end := func() { run.Lost([]int{lost}, errLost) }
		if r.between {
			now := end
			end = func() { run.Between(func() *event.RegroupEvent { now(); return nil }) }
		}
		m.end.Store(&end)
		if m.left.Load() <= 0 { // the moment has passed before the attempt was known
			end()
		}
		out := wait(t, run)
		for _, k := range adopted {
			if err := k.Close(); err != nil { // does nothing: the attempt has taken it
				t.Error(err)
			}
		}
		if out.Err == nil {
			break
		}
		if !errors.Is(out.Err, errLost) || renewals > 200 {
			t.Fatalf("seed %d, after %d renewals: %v", seed, renewals, out.Err)
		}
		if out.Carry == nil { // the first attempt may end before all stages are built
			if out.Unkept == nil || out.State.Step > 0 || spec.Carry != nil {
				t.Fatalf("seed %d: the stages are not kept at step %d: %v", seed, out.State.Step, out.Unkept)
			}
			continue
		}
		renewals++
		step, was := out.Carry.State().Step, int64(0)
		if spec.Carry != nil {
			was = spec.Carry.State().Step
		}
		adopted = slices.DeleteFunc(run.Kept(), func(k *actors.Kept) bool {
			if k.Rank != lost {
				return false
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			return true
		})
		for rank := range r.table.NumRanks() {
			kept := slices.ContainsFunc(adopted, func(k *actors.Kept) bool { return k.Rank == rank })
			if rank != lost && !kept && !slices.Contains(out.Carry.Unready(), rank) {
				t.Fatalf("seed %d: rank %d is not kept, though it had its weights", seed, rank)
			}
		}
		if len(adopted) < r.table.NumRanks()-1 && step > was { // otherwise some stages may not have adopted yet
			t.Fatalf("seed %d: %d stages are kept besides that of rank %d, of %d ranks", seed, len(adopted), lost, r.table.NumRanks())
		}
		spec.Carry, spec.Adopt, spec.Build = out.Carry, adopted, build
		if step > 0 {
			spec.Build = r.rebuild(t, known[step-1].source)
		}
		if r.shadowed {
			spec.Build, spec.Reader = r.fromShadows(t, spec.Build, adopted)
		}
	}
	if n := memory.Memory().InUse; n != 0 {
		t.Errorf("seed %d: %d bytes are in use after the end", seed, n)
	}
	return l, m, renewals
}

// rebuild makes stages with a state.
func (r renewed) rebuild(t *testing.T, load stages.Source) func(int, tensorops.Stream) (actors.Compute, error) {
	t.Helper()
	model, err := stages.NewModel(r.model)
	if err != nil {
		t.Fatal(err)
	}
	return func(rank int, s tensorops.Stream) (actors.Compute, error) { return r.build(model, rank, s, load, true) }
}

// fromShadows makes the stages of those ranks from their shadows whose holders have kept them, and the others with build.
func (r renewed) fromShadows(t *testing.T, build func(int, tensorops.Stream) (actors.Compute, error), adopted []*actors.Kept) (
	func(int, tensorops.Stream) (actors.Compute, error), *actors.WeightReader) {
	t.Helper()
	reader, at := actors.NewWeightReader(), r.ring()
	all := make([]func(int, tensorops.Stream) (actors.Compute, error), len(at))
	for rank, holder := range at {
		all[rank] = build
		kept := func(k *actors.Kept) bool { return k.Rank == rank }
		if slices.ContainsFunc(adopted, kept) {
			continue
		}
		if slices.ContainsFunc(adopted, func(k *actors.Kept) bool { return k.Rank == holder && slices.Contains(k.Shadows(), rank) }) {
			all[rank] = r.rebuild(t, reader.OfShadow(holder, rank))
			*r.shadows++
		}
	}
	return func(rank int, s tensorops.Stream) (actors.Compute, error) { return all[rank](rank, s) }, reader
}

// TestRenewedAttempts: a run that loses a random rank again and again, at random moments, and whose other ranks keep their stages, has
// the losses, norms, validation losses, weights and optimizer state of an undisturbed run to the bit. Each step has one line.
func TestRenewedAttempts(t *testing.T) {
	const m = sequences / microbatchSize
	oneFOneB := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m})
	some := func(_, microbatch int) bool { return microbatch%2 == 1 }
	seeds := uint64(1)
	if os.Getenv("TROUPE_LONG_TESTS") != "" {
		seeds = 12
	}
	total, shadows := 0, 0
	models := families
	if raceDetector { // races don't depend on the model
		models = families[:1]
	}
	for _, model := range models {
		model = small(model)
		for _, c := range []struct {
			name string
			renewed
		}{
			{"1f1b", renewed{training: training{table: oneFOneB, cuts: []int{2}}}},
			{"gpipe on 4 ranks, recomputing", renewed{training: training{cuts: []int{1, 2, 4}, recompute: some,
				table: generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 4, Chunks: 1, Microbatches: m})}}},
			{"interleaved", renewed{training: training{cuts: []int{1, 2, 4},
				table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m, MicrobatchGroupSize: 2})}}},
			{"I and W apart", renewed{training: training{table: split(t, oneFOneB, 3), cuts: []int{2}}}},
			{"post-validation, kept", renewed{training: training{table: oneFOneB, cuts: []int{3}}, clip: 1e9, postValidate: true}},
			{"post-validation, clipped", renewed{training: training{table: oneFOneB, cuts: []int{2}}, postValidate: true}},
			{"post-validation, skipped", renewed{training: training{table: oneFOneB, cuts: []int{2}}, clip: 1e9, postValidate: true,
				spoilt: []int64{3, 4, 7}}},
			{"skipped", renewed{training: training{table: oneFOneB, cuts: []int{2}}, spoilt: []int64{2, 5}}},
			{"shadows", renewed{training: training{table: oneFOneB, cuts: []int{2}}, shadowed: true}},
			{"shadows, gpipe on 4 ranks", renewed{training: training{cuts: []int{1, 2, 4}, recompute: some,
				table: generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 4, Chunks: 1, Microbatches: m})}, shadowed: true}},
			{"shadows, interleaved, skipped", renewed{training: training{cuts: []int{1, 2, 4},
				table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m, MicrobatchGroupSize: 2})}, spoilt: []int64{2, 5},
				shadowed: true}},
			{"shadows, post-validation, kept", renewed{training: training{table: oneFOneB, cuts: []int{3}}, clip: 1e9, postValidate: true,
				shadowed: true}},
			{"shadows, post-validation, clipped", renewed{training: training{table: oneFOneB, cuts: []int{2}}, postValidate: true,
				shadowed: true}},
		} {
			t.Run(model.Family+", "+c.name, func(t *testing.T) {
				r := c.renewed
				r.model, r.threads, r.steps, r.every, r.evalLens = model, 2, 9, 1, []int{model.Context, 3}
				before := shadows
				r.shadows = &shadows
				if r.clip == 0 {
					r.clip = clipNorm
				}
				want := &log{}
				if out := wait(t, start(t, r.spec(t, want, &moments{}))); out.Err != nil {
					t.Fatal(out.Err)
				}
				known := states(want, r.steps)
				r.every = 2
				for seed := range seeds {
					got, _, renewals := r.run(t, seed, known)
					total += renewals
					if a, b := got.figures(), want.figures(); !slices.Equal(a, b) {
						t.Fatalf("seed %d, %d renewals: %x, undisturbed %x", seed, renewals, a, b)
					}
					sameState(t, fmt.Sprintf("seed %d", seed), want.saves[len(want.saves)-1], got.saves[len(got.saves)-1])
				}
				if r.shadowed && shadows == before {
					t.Error("no rank got its state from its shadow")
				}
			})
		}
	}
	t.Logf("%d renewals, %d ranks restored from their shadows", total, shadows)
	if total < 100 && !raceDetector {
		t.Errorf("there are only %d renewals", total)
	}
}

// states returns the saved state after each step. A skipped step has the state before it.
func states(l *log, steps int64) []save {
	all := make([]save, steps)
	for _, s := range l.saves {
		all[s.state.Step-1] = s
	}
	for i := range all {
		if all[i].saved == nil && i > 0 {
			all[i] = all[i-1]
		}
	}
	return all
}

// TestRenewalFails: if a stage of an attempt that continues another one cannot get its state, the attempt ends with ErrRenewal, after which
// the run can restart. Later failures are not ErrRenewal.
func TestRenewalFails(t *testing.T) {
	errCopy := errors.New("no copy")
	for _, late := range []bool{false, true} {
		l, m := &log{}, &moments{}
		r := renewed{training: training{model: small(families[0]), threads: 1, cuts: []int{2}, steps: 1 << 40,
			table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8})}, clip: 1}
		spec := r.spec(t, l, m)
		spec.Keep = func([]int) error { return nil }
		run := start(t, spec)
		eventually(t, run, "a step", func() bool { return len(eventsOf[event.StepEvent](l)) > 2 })
		run.Lost([]int{0}, errLost)
		out := wait(t, run)
		if out.Carry == nil {
			t.Fatal(out.Unkept)
		}
		build := spec.Build
		spec.Carry, spec.Run = out.Carry, uuid.New()
		spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
			c, err := build(rank, s)
			if err == nil && !late {
				err = errCopy
			}
			return c, err
		}
		for _, k := range run.Kept() {
			if k.Rank == 1 {
				spec.Adopt = append(spec.Adopt, k)
			} else if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
		if late { // in the first step
			spec.WriteRecord = func(telemetry.Record) error { return errCopy }
		}
		out = wait(t, start(t, spec))
		if !errors.Is(out.Err, errCopy) || errors.Is(out.Err, actors.ErrRenewal) == late {
			t.Errorf("late %v: it ends with %v", late, out.Err)
		}
	}
}

// TestMissingLine: an attempt is not continued if it ends while the line of a step cannot be written, since no other would write it. The
// run restarts from a checkpoint and makes the step again.
func TestMissingLine(t *testing.T) {
	errDisk := errors.New("no space")
	l, failing := &log{}, make(chan struct{})
	spec := training{model: small(families[0]), threads: 1, cuts: []int{2}, steps: 1 << 40,
		table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8})}.spec(t, l)
	spec.Keep = func([]int) error { return nil }
	fails := sync.OnceFunc(func() { close(failing) })
	spec.MayPass = func(error) bool { return true }
	spec.WriteRecord = func(r telemetry.Record) error {
		if r.Step < 3 {
			return nil
		}
		fails()
		return errDisk
	}
	run := start(t, spec)
	<-failing
	run.Lost([]int{0}, errLost)
	if out := wait(t, run); !errors.Is(out.Err, errLost) || out.Carry != nil || !errors.Is(out.Unkept, errDisk) {
		t.Errorf("the outcome is %v, carry %v, unkept %v, want the reason %q", out.Err, out.Carry != nil, out.Unkept, errDisk)
	}
}

// TestUnkept: an attempt says why its stages do not outlive it.
func TestUnkept(t *testing.T) {
	errOwn := errors.New("no holder")
	table := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8})
	for _, c := range []struct {
		name   string
		change func(*actors.Spec)
		want   string
	}{
		{"no Keep", func(*actors.Spec) {}, "does not keep"},
		{"Keep refuses", func(s *actors.Spec) { s.Keep = func([]int) error { return errOwn } }, errOwn.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &log{}
			spec := training{model: small(families[0]), threads: 1, table: table, cuts: []int{2}, steps: 1 << 40}.spec(t, l)
			c.change(&spec)
			run := start(t, spec)
			eventually(t, run, "a step", func() bool { return len(eventsOf[event.StepEvent](l)) > 2 })
			run.Lost([]int{0}, errLost)
			out := wait(t, run)
			if !errors.Is(out.Err, errLost) || out.Carry != nil || out.Unkept == nil || !strings.Contains(out.Unkept.Error(), c.want) {
				t.Errorf("the outcome is %v, carry %v, unkept %v, want the reason %q", out.Err, out.Carry != nil, out.Unkept, c.want)
			}
			if n := len(run.Kept()); n > 0 {
				t.Errorf("%d stages are kept", n)
			}
		})
	}
}
