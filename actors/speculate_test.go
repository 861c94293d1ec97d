package actors_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// spoilNorms reports norms that are no numbers in some steps. Norms is called once a
// step, whatever is aborted.
type spoilNorms struct {
	actors.Compute
	step int
	at   []int
}

func (s *spoilNorms) Norms(to []stages.Norm) []stages.Norm {
	s.step++
	to = s.Compute.Norms(to)
	if slices.Contains(s.at, s.step) && len(to) > 0 {
		to[0].Squared = math.NaN()
	}
	return to
}

// small makes a step of a model quick.
func small(c stages.Config) stages.Config {
	c.Hidden, c.FFN, c.Context = 8, 12, 6
	return c
}

// regime is a training with a limit of its own on the gradient's norm.
type regime struct {
	training
	clip               float64
	spoilt             []int // steps without a finite norm
	evalEvery, ckEvery int64
}

func (r regime) spec(t testing.TB, l *log) actors.Spec {
	t.Helper()
	r.wrap = func(_ int, c actors.Compute) actors.Compute { return &spoilNorms{Compute: c, at: r.spoilt} }
	s := r.training.spec(t, l)
	s.ClipNorm, s.EvalEvery, s.CheckpointEvery = r.clip, r.evalEvery, r.ckEvery
	s.Rate.Steps = r.steps
	return s
}

// run trains to the end.
func (r regime) run(t testing.TB, postValidate bool) (*log, actors.Outcome) {
	t.Helper()
	l := &log{}
	spec := r.spec(t, l)
	spec.PostValidate = postValidate
	out := wait(t, start(t, spec))
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	return l, out
}

// predicted lists how each step's update is to be made, from the norms of the run: the
// first one predicts too many targets.
func (r regime) predicted(norms []float64) (how []string) {
	var held []bool
	for i, norm := range norms {
		step := int64(i + 1)
		between := step == r.steps || r.evalEvery > 0 && step%r.evalEvery == 0 && len(r.evalLens) > 0 || r.ckEvery > 0 && step%r.ckEvery == 0
		missed := 0
		for _, ok := range held[max(0, len(held)-8):] {
			if !ok {
				missed++
			}
		}
		ok := i > 0 && (r.clip == 0 || norm <= r.clip) // NaN is not
		if r.clip == 0 {
			ok = ok && !math.IsNaN(norm)
		}
		held = append(held, ok)
		switch {
		case between || missed > 4:
			how = append(how, actors.UpdateWaited)
		case ok:
			how = append(how, actors.UpdateKept)
		default:
			how = append(how, actors.UpdateRolledBack)
		}
	}
	return how
}

func (l *log) norms() (all []float64) {
	for _, e := range l.steps() {
		if e.GradNorm != nil {
			all = append(all, *e.GradNorm)
		}
	}
	return all
}

func median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	return s[len(s)/2]
}

// pipelined are tables whose ranks end a step at different times, or together.
func pipelined(t testing.TB) map[string]training {
	const m = sequences / microbatchSize
	some := func(_, microbatch int) bool { return microbatch%2 == 1 }
	return map[string]training{
		"zb-h2, 3 ranks": {threads: 2, table: generate(t, scheduler.Spec{Schedule: scheduler.ZBH2, Ranks: 3, Chunks: 1,
			Microbatches: m}), cuts: []int{1, 3}},
		"zb-h1": {threads: 1, table: generate(t, scheduler.Spec{Schedule: scheduler.ZBH1, Ranks: 2, Chunks: 1,
			Microbatches: m}), cuts: []int{2}},
		"zb-v, recomputing some": {threads: 2, table: generate(t, scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2,
			Microbatches: m}), cuts: []int{1, 2, 4}, recompute: some},
		"gpipe, 4 ranks": {threads: 3, table: generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 4, Chunks: 1,
			Microbatches: m}), cuts: []int{1, 2, 4}},
		"interleaved, an empty chunk": {threads: 2, table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m}),
			cuts: []int{2, 2, 4}, recompute: some},
		"one rank": {threads: 2, table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})},
	}
}

// TestPostValidationChangesNoBit: whatever is clipped, skipped, validated and saved on
// the way, the figures, the weights and the state are those of unpipelined training to
// the last bit; and each step's update is made in the way that the norms predict.
func TestPostValidationChangesNoBit(t *testing.T) {
	const m = sequences / microbatchSize
	momentum := stages.Optimizer{Name: stages.SGD, Momentum: 0.9, WeightDecay: 0.1}
	plain := training{threads: 1, steps: 16, table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})}
	for i, model := range families {
		plain.model = small(model)
		medianOf := func(o stages.Optimizer) float64 {
			tr := plain
			tr.optimizer = o
			unclipped, _ := regime{training: tr}.run(t, false)
			return median(unclipped.norms())
		}
		half := medianOf(adamw)
		for _, c := range []struct {
			name      string
			clip      float64
			spoilt    []int
			eval, ck  int64
			optimizer stages.Optimizer
			evalLens  []int
			counts    event.Updates
		}{
			{"never clipped", 0, nil, 0, 0, adamw, nil, event.Updates{Kept: 14, RolledBack: 1, Waited: 1}},
			{"clipped at times", half, nil, 0, 0, adamw, nil, event.Updates{}},
			{"clipped at times, momentum", 1.5 * medianOf(momentum), nil, 0, 0, momentum, nil, event.Updates{}},
			{"always clipped", half / 100, nil, 0, 0, adamw, nil, event.Updates{RolledBack: 5, Waited: 11}},
			{"skipped at times", 0, []int{1, 4, 5, 9, 16}, 0, 0, adamw, nil, event.Updates{Kept: 11, RolledBack: 4, Waited: 1}},
			{"validated and saved on the way", half, []int{7}, 3, 4, adamw, []int{6, 4}, event.Updates{}},
			{"validated after every step", 0, nil, 1, 0, momentum, []int{6}, event.Updates{Waited: 16}},
		} {
			if i > 0 && !strings.HasPrefix(c.name, "validated and saved") {
				continue // the second family has everything at once
			}
			r := regime{training: plain, clip: c.clip, spoilt: c.spoilt, evalEvery: c.eval, ckEvery: c.ck}
			r.optimizer, r.evalLens = c.optimizer, c.evalLens
			want, _ := r.run(t, false)
			predicted := r.predicted(want.norms())
			for name, p := range pipelined(t) {
				t.Run(fmt.Sprintf("%s, %s, %s", model.Family, c.name, name), func(t *testing.T) {
					p.model, p.steps, p.optimizer, p.evalLens = r.model, r.steps, r.optimizer, r.evalLens
					got, out := regime{training: p, clip: c.clip, spoilt: c.spoilt, evalEvery: c.eval, ckEvery: c.ck}.run(t, true)
					if a, b := got.figures(), want.figures(); !slices.Equal(a, b) {
						t.Errorf("%x, unpipelined %x", a, b)
					}
					sameSaves(t, want, got)
					var how []string
					var counts event.Updates
					for _, e := range got.steps() {
						switch e.Update {
						case actors.UpdateKept:
							counts.Kept++
						case actors.UpdateRolledBack:
							counts.RolledBack++
						case actors.UpdateWaited:
							counts.Waited++
						default:
							continue // the validation before the first step
						}
						how = append(how, e.Update)
					}
					if !slices.Equal(how, predicted) || counts != out.Updates {
						t.Errorf("updates were made so: %v (%+v), want %v", how, out.Updates, predicted)
					}
					if c.counts != (event.Updates{}) && counts != c.counts || c.counts == (event.Updates{}) &&
						(counts.Kept == 0 || counts.RolledBack < 2) {
						t.Errorf("%+v, want %+v, or some kept and some more than the first rolled back", counts, c.counts)
					}
				})
			}
		}
	}
}

// sameSaves compares all checkpoints of two runs.
func sameSaves(t *testing.T, want, got *log) {
	t.Helper()
	if len(want.saves) != len(got.saves) {
		t.Fatalf("%d checkpoints, want %d", len(got.saves), len(want.saves))
	}
	for i, w := range want.saves {
		if w.state.Step != got.saves[i].state.Step || w.state.Updates != got.saves[i].state.Updates {
			t.Errorf("checkpoint %d is of %+v, want %+v", i, got.saves[i].state, w.state)
		}
		sameState(t, fmt.Sprintf("the checkpoint of step %d", w.state.Step), w, got.saves[i])
	}
}

// ahead holds a run in a step whose first rank has begun the next: the last rank's norms
// of that step wait.
type ahead struct {
	t    *testing.T
	run  *actors.Run
	gate gate
}

// heldNorms is a stage whose norms of a step wait for a gate.
type heldNorms struct {
	actors.Compute
	gate  gate
	steps int64 // until then
}

func (h *heldNorms) GradNorms(l *tensorops.List) {
	if h.steps--; h.steps == 0 {
		h.gate.block(l)
	}
	h.Compute.GradNorms(l)
}

// holdAhead starts a run with post-validation and returns when its first rank has gone
// as far as it can without the decision about a step.
func holdAhead(t *testing.T, spec actors.Spec, step int64) *ahead {
	t.Helper()
	h := &ahead{t: t, gate: newGate()}
	t.Cleanup(h.gate.open) // before the device closes
	spec.PostValidate = true
	whole, last := spec.Build, spec.Table.NumRanks()-1
	spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
		c, err := whole(rank, s)
		if rank == last && err == nil {
			c = &heldNorms{Compute: c, gate: h.gate, steps: step}
		}
		return c, err
	}
	h.run = start(t, spec)
	eventually(t, h.run, "the step ahead", func() bool {
		s := h.run.Status().Actors[4]
		return s.Step == step+1 && s.Doing == event.Waiting && s.Wait != event.WaitTokens
	})
	return h
}

// request makes a request that the scheduler has taken before the step is decided.
func (h *ahead) request(what func()) {
	h.t.Helper()
	what()
	if err := h.run.Settle(); err != nil {
		h.t.Fatal(err)
	}
}

// TestRequestsWhileAStepIsAhead: a pause, a checkpoint or a stop that is asked for while
// the next step has begun comes before it, and what it did is done again; the results
// are those of an undisturbed run.
func TestRequestsWhileAStepIsAhead(t *testing.T) {
	const m, at, steps = sequences / microbatchSize, 3, 7
	plain := training{model: small(families[0]), threads: 1, steps: steps, evalLens: []int{6},
		table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})}
	for _, clip := range []float64{0, 1e-6} { // the update is kept, or rolled back
		want, _ := regime{training: plain, clip: clip, ckEvery: at}.run(t, false)
		for name, c := range map[string]struct {
			request func(h *ahead, l *log)
			ends    int64 // step
		}{
			"pause": {func(h *ahead, l *log) {
				h.request(h.run.Pause)
				h.gate.open()
				eventually(h.t, h.run, "the pause", func() bool { return len(eventsOf[event.PauseEvent](l)) == 1 })
				if e := eventsOf[event.PauseEvent](l)[0]; e != (event.PauseEvent{Step: at, Paused: true}) {
					h.t.Errorf("paused by %+v", e)
				}
				h.run.Resume()
			}, steps},
			"pause cancelled": {func(h *ahead, _ *log) {
				h.request(h.run.Pause)
				h.request(h.run.Resume)
				h.gate.open()
			}, steps},
			"checkpoint": {func(h *ahead, _ *log) {
				h.request(h.run.Checkpoint)
				h.gate.open()
			}, steps},
			"stop": {func(h *ahead, _ *log) {
				h.request(h.run.Stop)
				h.gate.open()
			}, at},
		} {
			for table, p := range pipelined(t) {
				if p.table.NumRanks() == 1 {
					continue
				}
				t.Run(fmt.Sprintf("%s, clip %g, %s", name, clip, table), func(t *testing.T) {
					p.model, p.steps, p.evalLens = plain.model, steps, plain.evalLens
					r := regime{training: p, clip: clip}
					l := &log{}
					h := holdAhead(t, r.spec(t, l), at)
					c.request(h, l)
					out := wait(t, h.run)
					if out.Err != nil || out.State.Step != c.ends {
						t.Fatalf("the run ends with %+v", out)
					}
					if name == "checkpoint" || name == "stop" {
						sameState(t, "the checkpoint", want.saves[0], l.saves[0])
					}
					got := l.figures()
					if name == "stop" {
						r.from = &l.saves[0]
						rest, _ := r.run(t, true)
						got, l = append(got, rest.figures()...), rest
					}
					if b := want.figures(); !slices.Equal(got, b) {
						t.Errorf("%x, undisturbed %x", got, b)
					}
					sameState(t, "the end", want.saves[len(want.saves)-1], l.saves[len(l.saves)-1])
				})
			}
		}
	}
}

// TestRandomRequestsChangeNoBit: pauses and checkpoints at any moment of a run whose
// updates are kept and rolled back.
func TestRandomRequestsChangeNoBit(t *testing.T) {
	const m = sequences / microbatchSize
	plain := training{model: small(families[1]), threads: 2, steps: 30, table: generate(t,
		scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})}
	unclipped, _ := regime{training: plain}.run(t, false)
	clip := median(unclipped.norms())
	want, _ := regime{training: plain, clip: clip}.run(t, false)
	for seed := range uint64(2) {
		for name, p := range pipelined(t) {
			p.model, p.steps = plain.model, plain.steps
			l := &log{}
			spec := regime{training: p, clip: clip}.spec(t, l)
			spec.PostValidate = true
			run := start(t, spec)
			rnd := rand.New(rand.NewPCG(seed, 1))
			requests := []func(){run.Pause, run.Resume, run.Checkpoint, run.Resume}
			for range 12 {
				requests[rnd.IntN(len(requests))]()
				time.Sleep(time.Duration(rnd.IntN(2500)) * time.Microsecond)
			}
			run.Resume()
			if out := wait(t, run); out.Err != nil {
				t.Fatal(out.Err)
			}
			if a, b := l.figures(), want.figures(); !slices.Equal(a, b) {
				t.Errorf("seed %d, %s: %x, undisturbed %x", seed, name, a, b)
			}
			sameState(t, name, want.saves[0], l.saves[len(l.saves)-1])
		}
	}
}

// TestStatusOfAStepAhead: a stage that has begun the next step says what it waits for,
// and the waits lead to the rank that holds the decision up.
func TestStatusOfAStepAhead(t *testing.T) {
	table := generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 2, Chunks: 1, Microbatches: 2})
	h := holdAhead(t, fakeRun{table: table, threads: 2, steps: 3, untied: true}.spec(t, &log{}), 1)
	const root = "root: stage 1 is summing gradients (training), "
	eventually(t, h.run, root, func() bool {
		s := h.run.Status()
		a := s.Actors[4]
		return strings.HasPrefix(s.Explain(), root) && a.Wait == event.WaitGradient && a.Step == 2 && a.From == "stage 1"
	})
	h.gate.open()
	if out := wait(t, h.run); out.Err != nil {
		t.Error(out.Err)
	}
}

// TestDecisionIsWaitedFor: until it knows the decision, no stage touches the gradients
// of the step before, by the loss's forward as little as by a backward. The scheduler is
// held before it makes it, and so the last rank has everything but the decision.
func TestDecisionIsWaitedFor(t *testing.T) {
	const step = 2
	table := generate(t, scheduler.Spec{Schedule: scheduler.ZBH2, Ranks: 2, Chunks: 1, Microbatches: 4})
	var speculated [2]bool // by rank, whose actor alone uses its own
	var early atomic.Int32
	spec := fakeRun{table: table, threads: 2, steps: 6, untied: true, hook: func(_ *tensorops.List, rank int, what string, chunk, _ int) {
		switch what {
		case "speculative apply":
			speculated[rank] = true
		case "commit", "rollback":
			speculated[rank] = false
		case "I", "W":
			if speculated[rank] {
				early.Add(1)
			}
		case "F":
			if speculated[rank] && chunk == 1 {
				early.Add(1)
			}
		}
	}}.spec(t, &log{})
	h := holdAhead(t, spec, step)
	decided := newGate()
	t.Cleanup(decided.open)
	h.run.Hold("scheduler", decided.closed)
	h.gate.open()
	eventually(t, h.run, "the wait for the decision", func() bool {
		s := h.run.Status().Actors[5]
		return s.Step == step+1 && s.Wait == event.WaitDecision && s.From == "scheduler" &&
			s.Action == scheduler.Action{Chunk: 1, Type: scheduler.F} &&
			strings.Contains(h.run.Status().String(), "the decision on the previous step")
	})
	decided.open()
	if out := wait(t, h.run); out.Err != nil || out.Updates != (event.Updates{Kept: 4, RolledBack: 1, Waited: 1}) {
		t.Errorf("the run ends with %+v", out)
	}
	if n := early.Load(); n != 0 {
		t.Errorf("%d actions touch gradients of a step that is not decided", n)
	}
}

// TestKillWhileAStepIsAhead leaves neither tensors nor goroutines.
func TestKillWhileAStepIsAhead(t *testing.T) {
	table := generate(t, scheduler.Spec{Schedule: scheduler.ZBH2, Ranks: 3, Chunks: 1, Microbatches: 6})
	for _, untied := range []bool{false, true} {
		func() {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			spec := fakeRun{table: table, threads: 2, steps: 8, untied: untied}.spec(t, &log{})
			defer spec.Device.Close()
			h := holdAhead(t, spec, 2)
			h.run.Kill()
			h.gate.open()
			if out := wait(t, h.run); !errors.Is(out.Err, actors.ErrKilled) {
				t.Errorf("the run ends with %+v", out)
			}
			if m := spec.Device.Memory(); m.InUse != 0 {
				t.Errorf("%d bytes of tensors are left", m.InUse)
			}
		}()
	}
}

// TestAbortedOrdersMessages: what belongs to an order that came ahead and is aborted is
// released, whether it comes before that is known or after.
func TestAbortedOrdersMessages(t *testing.T) {
	l := &log{}
	table := generate(t, scheduler.Spec{Schedule: scheduler.ZBH2, Ranks: 2, Chunks: 1, Microbatches: 4})
	spec := fakeRun{table: table, threads: 2, steps: 4, untied: true}.spec(t, l)
	spec.Run = uuid.New()
	h := holdAhead(t, spec, 2) // the first step was predicted wrongly: its order ahead was 2, done again as 3
	s := spec.Device.NewStream("late")
	defer s.Close()
	void := actors.Header{Run: spec.Run, Attempt: h.run.Attempt(), Step: 3, Order: 4}
	send := func(header actors.Header, microbatch int32) (released func() bool) {
		h.run.Tell("stage 1", &actors.Transfer{Header: header, Kind: scheduler.ForwardEdge, To: 1, Microbatch: microbatch,
			Tensor: newTensor(t, s)})
		h.run.Tell("stage 0", &actors.Transfer{Header: header, Kind: scheduler.BackwardEdge, Microbatch: microbatch, Tensor: newTensor(t, s)})
		h.run.Tell("stage 0", &actors.TiedGradient{Header: header, Grad: stages.TiedGrad{Param: int(microbatch), Grad: newTensor(t, s)}})
		h.run.Tell("stage 0", &actors.Credit{Header: header, Kind: scheduler.ForwardEdge})
		batch, released := actors.NewTrackedBatch()
		h.run.Tell("stage 0", &actors.Data{Header: header, Microbatch: microbatch, Batch: batch})
		return released
	}
	// Such microbatches and parameters as the table does not have: they are kept until
	// the order ends.
	before := send(void, 100)
	h.request(h.run.Pause)
	h.gate.open()
	eventually(t, h.run, "the pause", func() bool { return len(eventsOf[event.PauseEvent](l)) == 1 })
	eventually(t, h.run, "the release of what came before", func() bool { return before() && spec.Device.Memory().InUse == 0 })
	after := send(void, 0)
	eventually(t, h.run, "the release of what came after", func() bool { return after() && spec.Device.Memory().InUse == 0 })
	h.run.Resume()
	if out := wait(t, h.run); out.Err != nil || out.State.Step != 4 || out.Updates != (event.Updates{Kept: 2, RolledBack: 1, Waited: 1}) {
		t.Errorf("the run ends with %+v", out)
	}
}

// TestFailureWhileAStepIsAhead: whatever fails in a speculative update, in what ends it, or
// in the step ahead: the run ends, names the actor, the step and the cause, and leaves
// nothing behind.
func TestFailureWhileAStepIsAhead(t *testing.T) {
	table := generate(t, scheduler.Spec{Schedule: scheduler.ZBH2, Ranks: 3, Chunks: 1, Microbatches: 6})
	for _, c := range []struct {
		what string
		rank int
		n    int32
		step int64
	}{
		{"speculative apply", 0, 2, 2}, {"speculative apply", 2, 2, 2}, {"commit", 0, 1, 2}, {"commit", 1, 2, 3}, {"rollback", 0, 1, 1},
		{"rollback", 2, 1, 1}, {"abort", 0, 1, 1},
	} {
		for how, do := range map[string]func(l *tensorops.List) error{
			"refused": func(*tensorops.List) error { return errBoom },
			"panics":  func(*tensorops.List) error { panic(errBoom) },
			"fails on the device": func(l *tensorops.List) error {
				x := l.Alloc(tensorops.Float32, 1)
				l.AllReduce(x, tensorops.Sum, brokenGroup{start: func() error { return errBoom }})
				l.Free(x)
				return nil
			},
		} {
			t.Run(fmt.Sprintf("%s of rank %d %s", c.what, c.rank, how), func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				spec := fakeRun{table: table, threads: 2, steps: 6, untied: true, hook: fails(c.rank, c.what, c.n, do)}.spec(t, &log{})
				defer spec.Device.Close()
				h := holdAhead(t, spec, 1) // the first rank has begun what is aborted
				h.gate.open()
				out := wait(t, h.run)
				var failure *actors.ActorError
				if !errors.As(out.Err, &failure) || !errors.Is(out.Err, errBoom) {
					t.Fatalf("the run ends with %v", out.Err)
				}
				if want := fmt.Sprintf("stage %d", c.rank); failure.Actor != want || failure.Step != c.step {
					t.Errorf("%s failed in step %d, want %s in step %d", failure.Actor, failure.Step, want, c.step)
				}
				if m := spec.Device.Memory(); m.InUse != 0 && how != "panics" {
					t.Errorf("%d bytes of tensors are left", m.InUse)
				}
			})
		}
	}
}

// TestRollingBackTakesNoMore: memory does not grow with the steps that are rolled back.
func TestRollingBackTakesNoMore(t *testing.T) {
	p := pipelined(t)["zb-h2, 3 ranks"]
	p.model = small(families[0])
	taken := func(steps int64) int64 {
		p.steps = steps
		l := &log{}
		r := regime{training: p}
		for step := 1; step < int(steps); step += 2 {
			r.spoilt = append(r.spoilt, step)
		}
		spec := r.spec(t, l)
		spec.PostValidate = true
		out := wait(t, start(t, spec))
		if out.Err != nil || out.Updates.RolledBack < steps/2-1 || out.Updates.Kept < steps/2-1 {
			t.Fatalf("the run of %d steps ends with %+v", steps, out)
		}
		return spec.Device.Memory().Taken
	}
	if few, many := taken(20), taken(200); float64(many) > 1.1*float64(few) {
		t.Errorf("%d bytes are taken in 200 steps, %d in 20", many, few)
	}
}

// doubtful is a stage whose numbers are wrong while its update is a speculative one.
type doubtful struct {
	actors.Compute
	ahead bool
}

func (d *doubtful) SpeculativeApply(l *tensorops.List, u stages.Update) {
	d.ahead = true
	d.Compute.SpeculativeApply(l, u)
}

func (d *doubtful) Commit(l *tensorops.List) {
	d.ahead = false
	d.Compute.Commit(l)
}

func (d *doubtful) Rollback(l *tensorops.List, u *stages.Update) {
	d.ahead = false
	d.Compute.Rollback(l, u)
}

func (d *doubtful) Verify(int) error {
	if d.ahead {
		return stages.ErrNotFinite
	}
	return nil
}

// TestNumbersOfASpeculativeUpdate: what layers compute by an update that is rolled back is no
// mistake, whatever it is; where the update stands, it is one.
func TestNumbersOfASpeculativeUpdate(t *testing.T) {
	const at = 2 // the first step's update is rolled back in any case
	tr := pipelined(t)["zb-h1"]
	tr.model, tr.steps = small(families[0]), 5
	for _, clip := range []float64{0, 1e-6} { // the update is kept, or rolled back
		l := &log{}
		spec := regime{training: tr, clip: clip}.spec(t, l)
		whole := spec.Build
		spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
			c, err := whole(rank, s)
			if rank == 0 && err == nil {
				c = &doubtful{Compute: c}
			}
			return c, err
		}
		h := holdAhead(t, spec, at)
		h.gate.open()
		out := wait(t, h.run)
		if clip == 0 && !errors.Is(out.Err, stages.ErrNotFinite) {
			t.Errorf("the run ended with %v after a step by numbers that are none", out.Err)
		}
		if clip > 0 && (out.Err != nil || out.Updates.RolledBack == 0) {
			t.Errorf("%v, %+v: every update ahead was rolled back", out.Err, out.Updates)
		}
	}
}
