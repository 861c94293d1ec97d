package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// gridText is random text.
type gridText struct{}

func (gridText) Train(step int64, index int, tokens, targets []int32) error {
	k := rng.NewKey(99, uint64(step))
	for i := range tokens {
		at := uint64(index*len(tokens) + i)
		tokens[i], targets[i] = int32(rng.Intn(k, 0, at, gridVocab)), int32(rng.Intn(k, 1, at, gridVocab))
	}
	return nil
}

func (gridText) EvalWindows() int                     { return 0 }
func (gridText) EvalLen(int) int                      { return 0 }
func (gridText) EvalFill(int, []int32, []int32) error { return nil }

// checkpoints has what a run has saved, by step.
type checkpoints struct {
	mu  sync.Mutex
	all map[int64]map[string]string // by step and tensor: its type, shape and numbers
}

func (c *checkpoints) write(_ context.Context, state trainstate.State, saved []stages.Saved, _ bool) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tensors := make(map[string]string)
	for _, v := range saved {
		if _, twice := tensors[v.Name]; twice {
			return "", fmt.Errorf("%s was saved twice", v.Name)
		}
		tensors[v.Name] = fmt.Sprintf("%v %d %s", v.DType, v.Shape, bytes.Clone(v.Bytes()))
	}
	c.all[state.Step] = tensors
	return "there", nil
}

// rescuedSpec is the spec of a run in this process.
func rescuedSpec(t *testing.T, p *Plan, c *checkpoints) actors.Spec {
	t.Helper()
	s, err := p.Stages(0, stages.InitWeights(p.cfg.Run.Seed), false, p.LocalGroups())
	if err != nil {
		t.Fatal(err)
	}
	d, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	s.Device = d
	s.Run, s.Data, s.MicrobatchSize, s.Context, s.Sequences = uuid.New(), gridText{}, p.cfg.Batch.Microbatch, p.cfg.Model.Context,
		p.cfg.Batch.Sequences
	s.Rate, s.ClipNorm, s.Steps, s.WriteCheckpoint = stages.Rate{LR: 1e-2, Steps: 30}, 1, 30, c.write
	return s
}

// TestRescue: if a rank is lost, a rescue writes the checkpoint that an undisturbed run writes after that step, to the bit: the rank saves
// from a replica or from its shadow, and frozen weights are read again.
func TestRescue(t *testing.T) {
	freeze := `model.freeze=["embed", "0-1"]`
	for _, c := range []struct {
		name string
		sets []string
	}{
		{"replicas", []string{"parallel.data=2", "pipeline.stages=2"}},
		{"context groups", []string{"parallel.context=2", "pipeline.stages=2"}},
		{"frozen replicas", []string{"parallel.data=2", "pipeline.stages=2", freeze}},
		{"replicas of tensor groups", []string{"parallel.data=2", "parallel.tensor=2", freeze}},
		{"shadows", []string{"pipeline.stages=3"}},
		{"frozen, shadows", []string{"pipeline.stages=3", freeze, "optimizer.ema=0.9"}},
		{"tied and frozen, shadows", []string{"pipeline.stages=3", freeze, "model.tie_embeddings=true"}},
		{"frozen tensor groups, shadows", []string{"parallel.tensor=2", "pipeline.stages=2", freeze}},
		{"frozen in bfloat16, shadows", []string{"pipeline.stages=3", freeze, `device.dtype="bfloat16"`, `model.frozen_dtype="bfloat16"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := gridPlan(t, append(c.sets, "run.steps=30")...)
			if err != nil {
				t.Fatal(err)
			}
			want := undisturbed(t, p)
			for lost := range p.grid.World() {
				got := newCheckpoints()
				first := lostSpec(t, p, got, lost)
				out, kept := first.wait(t)
				s := rescueSpec(t, p, got, first.device, out.Carry, kept)
				step := out.Carry.State().Step
				if out := runOf(t, s); out.Err != nil || out.Regroup == nil || out.Regroup.Step != step {
					t.Fatalf("rank %d: %v, %+v", lost, out.Err, out.Regroup)
				}
				if n := first.device.Memory().InUse; n != 0 {
					t.Errorf("rank %d: %d bytes are in use after the end", lost, n)
				}
				if len(got.all) != 1 {
					t.Fatalf("rank %d: checkpoints of %d steps, want one", lost, len(got.all))
				}
				got.check(t, want, step)
			}
		})
	}
}

// undisturbed are the checkpoints of all steps of a run.
func undisturbed(t *testing.T, p *Plan) *checkpoints {
	t.Helper()
	c := newCheckpoints()
	s := rescuedSpec(t, p, c)
	s.CheckpointEvery = 1
	if out := runOf(t, s); out.Err != nil {
		t.Fatal(out.Err)
	}
	return c
}

func newCheckpoints() *checkpoints { return &checkpoints{all: make(map[int64]map[string]string)} }

// check compares the checkpoint of a step with that of an undisturbed run.
func (c *checkpoints) check(t *testing.T, want *checkpoints, step int64) {
	t.Helper()
	if len(c.all[step]) != len(want.all[step]) {
		t.Fatalf("step %d: a checkpoint with %d tensors, want %d", step, len(c.all[step]), len(want.all[step]))
	}
	for name, v := range want.all[step] {
		if c.all[step][name] != v {
			t.Errorf("step %d: %s differs from that of an undisturbed run (%.20q, want %.20q)", step, name, c.all[step][name], v)
		}
	}
}

// losing is an attempt that loses a rank.
type losing struct {
	actors.Spec
	rank    int
	device  tensorops.Device
	started chan *actors.Run
}

var errLostRank = errors.New("lost")

// lostSpec is an attempt that loses a rank after step 2.
func lostSpec(t *testing.T, p *Plan, c *checkpoints, rank int) *losing {
	t.Helper()
	l := &losing{Spec: rescuedSpec(t, p, c), rank: rank, started: make(chan *actors.Run, 1)}
	if l.device = l.Device; !p.Replicated() {
		l.Shadows = p.PlaceShadows(apart(p.grid.World()), nil).At
	}
	l.OnEvent = func(e event.Event) {
		if e, ok := e.(event.StepEvent); ok && e.Step == 2 {
			l.lose()
		}
	}
	return l
}

func (l *losing) lose() { (<-l.started).Lost([]int{l.rank}, errLostRank) }

// wait runs the attempt to its end, and returns what the next one continues with, without the rank.
func (l *losing) wait(t *testing.T) (out actors.Outcome, kept []*actors.Kept) {
	t.Helper()
	l.Keep = func([]int) error { return nil }
	run, err := actors.Start(l.Spec)
	if err != nil {
		t.Fatal(err)
	}
	l.started <- run
	if out = run.Wait(); out.Carry == nil {
		t.Fatalf("rank %d: %v, %v", l.rank, out.Err, out.Unkept)
	}
	for _, k := range run.Kept() {
		if k.Rank != l.rank {
			kept = append(kept, k)
		} else if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	return out, kept
}

// rescueSpec is a rescue that continues with what was kept.
func rescueSpec(t *testing.T, p *Plan, c *checkpoints, d tensorops.Device, carry *actors.Carry, kept []*actors.Kept) actors.Spec {
	t.Helper()
	s := rescuedSpec(t, p, c)
	s.Device, s.Carry, s.Adopt, s.Rescue = d, carry, kept, &event.RegroupEvent{Lost: []string{"w"}}
	var err error
	if s.Frozen, err = p.Frozen(stages.InitWeights(p.cfg.Run.Seed)); err != nil {
		t.Fatal(err)
	}
	s.Build = nil // no rank is made
	return s
}

// TestRescueAgain: if a rescue loses another rank while it writes, the next one writes the same checkpoint with what is left. If workers
// have come meanwhile, the run continues with the bits of an undisturbed one.
func TestRescueAgain(t *testing.T) {
	p, err := gridPlan(t, "pipeline.stages=4", "run.steps=30", "optimizer.ema=0.9")
	if err != nil {
		t.Fatal(err)
	}
	want, at, tried := undisturbed(t, p), p.PlaceShadows(apart(4), nil), 0
	for first := range 4 {
		for second := range 4 {
			if first == second || p.Keeps([]int{first, second}, at) != nil {
				continue
			}
			for _, rescues := range []bool{true, false} {
				tried++
				got, lost := newCheckpoints(), lostSpec(t, p, newCheckpoints(), first)
				out, kept := lost.wait(t)
				step := out.Carry.State().Step
				again := &losing{Spec: rescueSpec(t, p, nil, lost.device, out.Carry, kept), rank: second,
					started: make(chan *actors.Run, 1)}
				again.WriteCheckpoint = func(context.Context, trainstate.State, []stages.Saved, bool) (string, error) {
					again.lose()
					return "", errors.New("the disk has failed")
				}
				out, kept = again.wait(t)
				s := rescueSpec(t, p, got, lost.device, out.Carry, kept)
				if !rescues {
					s.Reader = actors.NewWeightReader()
					from := func(rank int) stages.Source { return s.Reader.OfShadow(at.Of(rank), rank) }
					whole, err := p.StagesFrom(0, Loading{From: from, WithState: true, Readers: 2}, p.LocalGroups())
					if err != nil {
						t.Fatal(err)
					}
					s.Build, s.Shadows, s.Rescue, s.Frozen = whole.Build, at.At, nil, nil
				}
				end := runOf(t, s)
				if end.Err != nil || rescues != (end.Regroup != nil) || rescues && end.Regroup.Step != step {
					t.Fatalf("ranks %d and %d: %v, %+v", first, second, end.Err, end.Regroup)
				}
				got.check(t, want, end.State.Step)
				if n := lost.device.Memory().InUse; n != 0 {
					t.Errorf("ranks %d and %d: %d bytes are in use after the end", first, second, n)
				}
			}
		}
	}
	if tried != 8 {
		t.Errorf("pairs of ranks were lost %d times, want 4 pairs, each twice", tried)
	}
}

// TestFrozenUnread: a rescue that cannot read a frozen weight of a lost rank again says which, and the run may restart.
func TestFrozenUnread(t *testing.T) {
	p, err := gridPlan(t, "pipeline.stages=2", `model.freeze=["embed", "0-1"]`, "run.steps=30")
	if err != nil {
		t.Fatal(err)
	}
	lost := lostSpec(t, p, newCheckpoints(), 0)
	out, kept := lost.wait(t)
	s := rescueSpec(t, p, newCheckpoints(), lost.device, out.Carry, kept)
	cause := errors.New("base.safetensors is gone")
	s.Frozen.Source = func(*stages.Param, string, []float32) error { return cause }
	err = runOf(t, s).Err
	if !errors.Is(err, cause) || !IsLost(err) {
		t.Fatal(err)
	}
	step := fmt.Sprintf("no checkpoint of step %d", out.Carry.State().Step)
	for _, part := range []string{step, "the frozen weight ", "of stage 0", "check"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

func runOf(t *testing.T, s actors.Spec) actors.Outcome {
	t.Helper()
	run, err := actors.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	return run.Wait()
}

// apart are ranks in a process each.
func apart(ranks int) (all []Site) {
	for rank := range ranks {
		all = append(all, Site{Process: fmt.Sprint(rank)})
	}
	return all
}

// TestFrozen: what a rescue reads again are the weights that checkpoints have and that are not trained.
func TestFrozen(t *testing.T) {
	for _, c := range []struct {
		sets   []string
		frozen []string // parts of names; nil: none
	}{
		{[]string{"pipeline.stages=2"}, nil},
		{[]string{"pipeline.stages=2", `model.freeze=["0-1"]`}, []string{".0.", ".1."}},
	} {
		p, err := gridPlan(t, c.sets...)
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.Frozen(stages.InitWeights(1))
		if err != nil || (f == nil) != (c.frozen == nil) {
			t.Fatalf("%s: %v, %v", c.sets, f, err)
		}
		if f == nil {
			continue
		}
		for _, w := range f.Params {
			_, saves := f.Types[w.Index]
			want := slices.ContainsFunc(c.frozen, func(part string) bool { return strings.Contains(w.Name, part) })
			if saves != want || saves != w.Frozen {
				t.Errorf("%s: %s is read again: %t, want %t", c.sets, w.Name, saves, want)
			}
		}
	}
}
