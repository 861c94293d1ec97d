package stages_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// timedStep are the times of the parts of a step's actions on the first of two ranks that share experts, with its losses.
type timedStep struct {
	first, forward, backward, last []scheduler.PartTime // a forward, the forward and the backward of a pair, a backward
	losses                         [2]float64
}

// timeStep runs two microbatches of a model with two layers with experts on two ranks, the forward of the second with the backward of
// the first.
func timeStep(t *testing.T, overlap bool, order []int) (out timedStep) {
	t.Helper()
	dev, m := newDevice(t, 2), newModel(t, withShared)
	data, errs := collective.Local("dp", 2), make(chan error, 2)
	experts, all := localExperts(2, 2)
	for rank := range 2 {
		s := dev.NewStream("rank")
		t.Cleanup(s.Close)
		own := experts[rank]
		own.Rows, own.Overlap = withShared.Context, overlap
		go func() {
			err := func() error {
				st, err := stages.NewStage(m, s, []stages.ChunkSpec{{Last: len(m.Symbols())}}, stages.Options{Seed: 5, Optimizer: adamw,
					Data: stages.DataParallel{Group: data[rank]}, Experts: own})
				if err != nil {
					return err
				}
				defer st.Close() //nolint:errcheck // of no interest after an error
				if err := st.Load(stages.Sliced(largeWeights), false); err != nil {
					return err
				}
				act := func(l *tensorops.List, typ scheduler.Type, index int) (func(), **stages.PartTimes) {
					times := new(*stages.PartTimes)
					mb := stages.Microbatch{Step: 1, Index: index, FirstSequence: 2*rank + index, Sequences: 1,
						Positions: withShared.Context, Train: true}
					for k := range withShared.Context {
						mb.Tokens = append(mb.Tokens, int32((3*k+index+5*rank)%withShared.Vocab))
						mb.Targets = append(mb.Targets, int32((5*k+2*index+rank)%withShared.Vocab))
					}
					return func() {
						*times = st.BeginParts(l, typ)
						stages.Act(l, st, scheduler.Action{Type: typ, Microbatch: int32(index)}, &mb, tensorops.Tensor{})
						st.EndParts(l)
					}, times
				}
				list := func() *tensorops.List { return s.NewList() }
				l := list()
				record, first := act(l, scheduler.F, 0)
				record()
				if err := tensorops.Run(s, l); err != nil {
					return err
				}
				if rank == 0 {
					out.losses[0], _ = st.Loss(0, 0)
				}
				l = list()
				recordF, forward := act(l, scheduler.F, 1)
				recordB, backward := act(l, scheduler.B, 0)
				stages.ActTogether(st, order, recordF, recordB)
				if err := tensorops.Run(s, l); err != nil {
					return err
				}
				if rank == 0 {
					out.losses[1], _ = st.Loss(0, 1)
				}
				l = list()
				record, last := act(l, scheduler.B, 1)
				record()
				if err := tensorops.Run(s, l); err != nil {
					return err
				}
				if rank == 0 {
					out.first, out.forward = (*first).Parts(), (*forward).Parts()
					out.backward, out.last = (*backward).Parts(), (*last).Parts()
				}
				return nil
			}()
			if err != nil {
				for _, g := range slices.Concat(all, data) {
					g.Leave(err)
				}
			}
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	return out
}

// exchangesOf are the exchanges between parts, whose times it checks.
func exchangesOf(t *testing.T, parts []scheduler.PartTime) (all []scheduler.Type) {
	t.Helper()
	for i, p := range parts {
		if p.Start.IsZero() || p.End.Before(p.Start) || i > 0 && p.Start.Before(parts[i-1].End) {
			t.Errorf("part %d of %d: %+v", i+1, len(parts), p)
		}
		if last := i == len(parts)-1; last {
			if p.Exchange != 0 || !p.Sent.IsZero() || !p.Came.IsZero() {
				t.Errorf("an exchange behind the last part: %+v", p)
			}
			continue
		}
		if all = append(all, p.Exchange); p.Sent.Before(p.Start) || p.Came.Before(p.Sent) || p.Came.After(parts[i+1].Start) {
			t.Errorf("the exchange after part %d: %+v, and the next part begins at %v", i+1, p, parts[i+1].Start)
		}
	}
	return all
}

// turnsOf is the order in which the parts of a pair ran. No two ran at the same time.
func turnsOf(t *testing.T, forward, backward []scheduler.PartTime) (order []int) {
	t.Helper()
	before := forward[0]
	for len(forward)+len(backward) > 0 {
		side, of := 0, &forward
		if len(forward) == 0 || len(backward) > 0 && backward[0].Start.Before(forward[0].Start) {
			side, of = 1, &backward
		}
		p := (*of)[0]
		if len(order) > 0 && p.Start.Before(before.End) {
			t.Errorf("a part begins at %v, the one before ends at %v", p.Start, before.End)
		}
		before, *of, order = p, (*of)[1:], append(order, side)
	}
	return order
}

// TestPartTimes: the times of parts are those of each part and exchange of the model, in the order in which the passes take turns: the
// usual one or any other. No loss depends on it.
func TestPartTimes(t *testing.T) {
	forward := []scheduler.Type{scheduler.FD, scheduler.FC, scheduler.FD, scheduler.FC}
	backward := []scheduler.Type{scheduler.BD, scheduler.BC, scheduler.BD, scheduler.BC}
	var losses [2]float64
	for i, order := range [][]int{nil, {0, 0, 1, 1, 1, 0, 1, 0, 0, 1}, {1, 1, 1, 1, 1, 0, 0, 0, 0, 0}} {
		got := timeStep(t, true, order)
		for name, of := range map[string]struct {
			parts []scheduler.PartTime
			want  []scheduler.Type
		}{"forward": {got.first, forward}, "forward of a pair": {got.forward, forward}, "backward of a pair": {got.backward, backward},
			"backward": {got.last, backward}} {
			if all := exchangesOf(t, of.parts); !slices.Equal(all, of.want) {
				t.Errorf("order %v, %s: exchanges %v, want %v", order, name, all, of.want)
			}
		}
		if order == nil {
			order = scheduler.Turns(5, 5)
		}
		if turns := turnsOf(t, got.forward, got.backward); !slices.Equal(turns, order) {
			t.Errorf("the parts ran in the order %v, want %v", turns, order)
		}
		if i == 0 {
			losses = got.losses
		}
		if got.losses != losses || losses[0] <= 0 {
			t.Errorf("order %v: losses %v, want %v", order, got.losses, losses)
		}
	}
	// Without overlap each collective is an exchange: the tokens, and in a backward their weights, and both again for the weight gradient.
	got := timeStep(t, false, nil)
	if all := exchangesOf(t, got.forward); !slices.Equal(all, forward) {
		t.Errorf("without overlap, forward: %v", all)
	}
	layer := []scheduler.Type{scheduler.BD, scheduler.BD, scheduler.BC, scheduler.BC, scheduler.BD, scheduler.BD}
	if all := exchangesOf(t, got.backward); !slices.Equal(all, slices.Repeat(layer, 2)) {
		t.Errorf("without overlap, backward: %v", all)
	}
	if turns := turnsOf(t, got.forward, got.backward); !slices.IsSorted(turns) || got.losses != losses {
		t.Errorf("without overlap: turns %v, losses %v", turns, got.losses)
	}
}

// TestPartTimesOfOneRank: a rank with all experts has no parts.
func TestPartTimesOfOneRank(t *testing.T) {
	dry, m := tensorops.NewDryStream(), newModel(t, withShared)
	st, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, stages.Options{Optimizer: adamw})
	if err != nil {
		t.Fatal(err)
	}
	if l := dry.NewList(); st.BeginParts(l, scheduler.F) != nil || len(l.Ops()) > 0 {
		t.Error("it has")
	}
	if (*stages.PartTimes)(nil).Parts() != nil {
		t.Error("nothing has parts")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
