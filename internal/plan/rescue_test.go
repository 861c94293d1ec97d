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
	errLost := errors.New("lost")
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
			want := &checkpoints{all: make(map[int64]map[string]string)}
			s := rescuedSpec(t, p, want)
			s.CheckpointEvery = 1
			if out := runOf(t, s); out.Err != nil {
				t.Fatal(out.Err)
			}
			for lost := range p.grid.World() {
				got := &checkpoints{all: make(map[int64]map[string]string)}
				s := rescuedSpec(t, p, got)
				if !p.Replicated() {
					s.Shadows = p.PlaceShadows(apart(p.grid.World()), nil).At
				}
				s.Keep = func([]int) error { return nil }
				started := make(chan *actors.Run, 1)
				s.OnEvent = func(e event.Event) {
					if e, ok := e.(event.StepEvent); ok && e.Step == 2 {
						(<-started).Lost([]int{lost}, errLost)
					}
				}
				run, err := actors.Start(s)
				if err != nil {
					t.Fatal(err)
				}
				started <- run
				out := run.Wait()
				if out.Carry == nil {
					t.Fatalf("rank %d: %v, %v", lost, out.Err, out.Unkept)
				}
				memory := s.Device
				s = rescuedSpec(t, p, got)
				s.Device, s.Carry, s.Rescue = memory, out.Carry, &event.RegroupEvent{Lost: []string{"w"}}
				if s.Frozen, err = p.Frozen(stages.InitWeights(p.cfg.Run.Seed)); err != nil {
					t.Fatal(err)
				}
				s.Build = nil // no rank is made
				for _, k := range run.Kept() {
					if k.Rank != lost {
						s.Adopt = append(s.Adopt, k)
					} else if err := k.Close(); err != nil {
						t.Error(err)
					}
				}
				step := out.Carry.State().Step
				if out := runOf(t, s); out.Err != nil || out.Regroup == nil || out.Regroup.Step != step {
					t.Fatalf("rank %d: %v, %+v", lost, out.Err, out.Regroup)
				}
				if n := memory.Memory().InUse; n != 0 {
					t.Errorf("rank %d: %d bytes are in use after the end", lost, n)
				}
				if len(got.all) != 1 || len(got.all[step]) != len(want.all[step]) {
					t.Fatalf("rank %d: checkpoints of %d steps, with %d tensors; want %d", lost, len(got.all), len(got.all[step]),
						len(want.all[step]))
				}
				for name, v := range want.all[step] {
					if got.all[step][name] != v {
						t.Errorf("rank %d, step %d: %s differs from that of an undisturbed run (%.20q, want %.20q)", lost, step, name,
							got.all[step][name], v)
					}
				}
			}
		})
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
