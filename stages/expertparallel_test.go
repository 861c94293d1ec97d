package stages_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// shared are the results of replicas whose groups share experts.
type shared struct {
	losses []float64 // by rank and microbatch
	norms  map[int]float64
	parts  map[int][]float64    // of norms, in ascending order
	state  map[string][]float32 // whole tensors
}

// trainShared trains two steps on ranks of which each group has the experts once. source gives the weights. With o.Experts.Overlap the
// forward of the second microbatch and the backward of the first are a pair. The members of o.Context.Group are made here: as many ranks
// share the positions of a replica's sequences.
func trainShared(t *testing.T, c stages.Config, o stages.Options, ranks, group int, source stages.Source) shared {
	t.Helper()
	dev, m := newDevice(t, 2), newModel(t, c)
	const microbatches, sequences = 2, 2
	data := collective.Local("dp", ranks)
	experts, all := localExperts(ranks, group)
	all = append(all, data...)
	context, contexts, shorter := 1, make([]tensorops.Group, ranks), 1
	if o.Context.Group != nil {
		context = o.Context.Group.Size()
		shorter = 2 * context
		for first := 0; first < ranks; first += context {
			for i, g := range collective.Local("cp", context) {
				contexts[first+i], all = g, append(all, g)
			}
		}
	}
	out := shared{losses: make([]float64, 2*ranks*microbatches), norms: make(map[int]float64),
		parts: make(map[int][]float64), state: make(map[string][]float32)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, ranks)
	for rank := range ranks {
		s := dev.NewStream(fmt.Sprint("rank ", rank))
		t.Cleanup(s.Close)
		own := o
		own.Data.Group, own.Context.Group = data[rank], contexts[rank]
		if group > 1 {
			own.Experts = experts[rank]
			own.Experts.Rows, own.Experts.Overlap = sequences*c.Context/context, o.Experts.Overlap
		}
		wg.Go(func() {
			errs[rank] = func() error {
				st, err := stages.NewStage(m, s, []stages.ChunkSpec{{Last: len(m.Symbols())}}, own)
				if err != nil {
					return err
				}
				defer st.Close() //nolint:errcheck // of no interest after an error
				if err := st.Load(stages.Sliced(source), false); err != nil {
					return err
				}
				run := func(f func(l *tensorops.List)) error {
					l := s.NewList()
					f(l)
					return tensorops.Run(s, l)
				}
				for step := range 2 {
					var mbs []stages.Microbatch
					for i := range microbatches {
						// Replicas whose microbatches differ in length, too.
						replica := rank / context
						mb := stages.Microbatch{Step: int64(step + 1), Index: i,
							FirstSequence: (replica*microbatches + i) * sequences, Sequences: sequences,
							Positions: c.Context - replica%2*shorter, Train: true, Of: microbatches, Recompute: i == 1}
						for k := range mb.Sequences * mb.Positions {
							mb.Tokens = append(mb.Tokens, int32((3*k+i+5*replica+7*step)%c.Vocab))
							mb.Targets = append(mb.Targets, int32((5*k+2*i+replica)%c.Vocab))
						}
						mbs = append(mbs, mb)
					}
					forward := func(l *tensorops.List, i int) func() {
						return func() { st.Forward(l, 0, &mbs[i], tensorops.Tensor{}) }
					}
					backward := func(l *tensorops.List, i int) func() {
						return func() { st.Backward(l, 0, i, tensorops.Tensor{}) }
					}
					passes := []func(l *tensorops.List){func(l *tensorops.List) { forward(l, 0)() },
						func(l *tensorops.List) { backward(l, 0)() }, func(l *tensorops.List) { forward(l, 1)() },
						func(l *tensorops.List) { backward(l, 1)() }}
					if own.Experts.Overlap {
						passes = []func(l *tensorops.List){passes[0],
							func(l *tensorops.List) { stages.ActTogether(st, nil, forward(l, 1), backward(l, 0)) }, passes[3]}
					}
					for k, pass := range passes {
						if err := run(pass); err != nil {
							return err
						}
						for i := range microbatches {
							if first := k == 0 && i == 0; first || i == 1 && k == len(passes)-2 { // its forward has ended, its backward has not begun
								out.losses[(step*ranks+rank)*microbatches+i], _ = st.Loss(0, i)
							}
						}
					}
					if err := run(st.GradNorms); err != nil {
						return err
					}
					mu.Lock()
					for _, n := range st.Norms(nil) {
						out.norms[n.Param] += n.Squared
						out.parts[n.Param] = append(out.parts[n.Param], n.Squared)
					}
					mu.Unlock()
					if err := run(func(l *tensorops.List) {
						st.Apply(l, stages.Update{Count: step + 1, LR: 0.01, GradScale: 0.1})
					}); err != nil {
						return err
					}
				}
				var saved []stages.Saved
				if err := run(func(l *tensorops.List) { saved = st.Save(l, nil) }); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				for _, v := range saved {
					if v.DType == tensorops.BFloat16 {
						for _, half := range tensorops.HostNumbers[uint16](v.Narrow) {
							v.Data = append(v.Data, math.Float32frombits(uint32(half)<<16))
						}
					}
					if v.Whole == nil {
						out.state[v.Name] = append([]float32(nil), v.Data...)
						continue
					}
					n := 1
					for _, d := range v.Whole {
						n *= d
					}
					if out.state[v.Name] == nil {
						out.state[v.Name] = make([]float32, n)
					}
					if err := v.Slice.Put(out.state[v.Name], v.Data, v.Whole); err != nil {
						return err
					}
				}
				return nil
			}()
			if errs[rank] != nil {
				for _, g := range all {
					g.Leave(errs[rank])
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, parts := range out.parts {
		slices.Sort(parts)
	}
	return out
}

// localExperts returns the groups of each of several ranks, of which every group-th share experts, and all of them.
func localExperts(ranks, group int) (of []stages.ExpertParallel, all []*collective.Group) {
	of = make([]stages.ExpertParallel, ranks)
	if group <= 1 {
		return of, nil
	}
	for first := 0; first < ranks; first += group {
		for i, g := range collective.Local("ep", group) {
			of[first+i].Group, all = g, append(all, g)
		}
	}
	for place := range group {
		for i, g := range collective.Local("edp", ranks/group) {
			of[i*group+place].Copies, all = g, append(all, g)
		}
	}
	return of, all
}

// mustBe compares the results of groups of a size with those of ranks that have all experts.
func (got shared) mustBe(t *testing.T, want shared, group int) {
	t.Helper()
	for i, loss := range want.losses {
		if got.losses[i] != loss || !(loss > 0) {
			t.Fatalf("groups of %d: loss %d is %v, want %v", group, i, got.losses[i], loss)
		}
	}
	for param, norm := range want.norms {
		if d := math.Abs(got.norms[param] - norm); d > 1e-12*norm {
			t.Errorf("groups of %d: the norm of parameter %d is %v, want %v", group, param, got.norms[param], norm)
		}
		if !slices.Equal(got.parts[param], want.parts[param]) { // their sum has the same bits if they are added in the same order
			t.Errorf("groups of %d: the norm of parameter %d has the parts %v, want %v", group, param, got.parts[param], want.parts[param])
		}
	}
	if len(got.state) != len(want.state) {
		t.Errorf("groups of %d save %d tensors, want %d", group, len(got.state), len(want.state))
	}
	for tensor, v := range want.state {
		for i, x := range v {
			if len(got.state[tensor]) != len(v) || got.state[tensor][i] != x {
				t.Fatalf("groups of %d: %s differs at %d", group, tensor, i)
			}
		}
	}
}

// TestExpertParallel: ranks that share experts have the losses, the weights and the optimizer state of ranks that have all of
// them, to the bit, and the norms of their gradients: also if one rank's experts get all tokens and the others' none, and if
// microbatches differ in length.
func TestExpertParallel(t *testing.T) {
	c := stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, RopeTheta: 1000,
		Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 12, Renormalize: true, AuxLossWeight: 0.1, Dense: []int{0}}, MTPLayers: 1,
		MTPWeight: 0.3}
	one := stages.Source(func(p *stages.Param, part string, dst []float32) error {
		err := largeWeights(p, part, dst)
		if strings.HasSuffix(p.Name, "mlp.gate.weight") {
			clear(dst) // all experts are equally good: each token gets the first two
		}
		return err
	})
	for name, w := range map[string]stages.Source{"any": largeWeights, "one gets all": one} {
		for kind, o := range map[string]stages.Options{"float32": {Seed: 5, Optimizer: adamw, Pack: true},
			"bfloat16": {Seed: 5, Optimizer: stages.Optimizer{Name: stages.SGD, Momentum: 0.9}, BF16: true}} {
			if raceDetector && kind == "bfloat16" {
				continue
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				want := trainShared(t, c, o, 4, 1, w)
				for _, group := range []int{2, 4, -4} {
					own := o
					if group < 0 { // the pair computes one microbatch while the tokens of the other travel
						group, own.Experts.Overlap = -group, true
					}
					got := trainShared(t, c, own, 4, group, w)
					got.mustBe(t, want, group)
				}
			})
		}
	}
}

// withShared is a model whose layers have a shared expert with a gate.
var withShared = stages.Config{Family: stages.Qwen2MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19,
	RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 12, SharedWidth: 20, SharedGate: true, AuxLossWeight: 0.1}}

// TestSharedExpertMeanwhile: a shared expert that computes while tokens travel changes no bit.
func TestSharedExpertMeanwhile(t *testing.T) {
	for kind, o := range map[string]stages.Options{"float32": {Seed: 5, Optimizer: adamw, Pack: true},
		"bfloat16": {Seed: 5, Optimizer: stages.Optimizer{Name: stages.SGD, Momentum: 0.9}, BF16: true}} {
		t.Run(kind, func(t *testing.T) {
			want := trainShared(t, withShared, o, 2, 1, largeWeights)
			for _, overlap := range []bool{false, true} {
				own := o
				own.Experts.Overlap = overlap
				trainShared(t, withShared, own, 2, 2, largeWeights).mustBe(t, want, 2)
			}
		})
	}
}

// TestSharedExpertHides: while tokens travel, the shared expert computes its products: all of a forward at the dispatch, of a backward
// that of the last matrix at the dispatch and the weight gradients at the combine.
func TestSharedExpertHides(t *testing.T) {
	// Products of a layer between the beginning of exchanges and the wait for them, at each of the four waits: the gate and the two
	// first matrices and the last one, then none; the last one, then the gradients of the four matrices.
	want := []int{4, 0, 1, 4}
	for _, overlap := range []bool{true, false} {
		m, dry := newModel(t, withShared), tensorops.NewDryStream()
		group := tensorops.DryGroup{Members: 2}
		st, err := stages.NewStage(m, dry, []stages.ChunkSpec{{First: 1, Last: 2}}, stages.Options{Optimizer: adamw,
			Data:    stages.DataParallel{Group: group},
			Experts: stages.ExpertParallel{Group: group, Rows: withShared.Context, Overlap: overlap}})
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]int32, withShared.Context)
		mb := stages.Microbatch{Step: 1, Sequences: 1, Positions: withShared.Context, Tokens: ids, Targets: ids, Train: true}
		var hidden []int
		for _, typ := range []scheduler.Type{scheduler.F, scheduler.B} {
			l := dry.NewList()
			x := l.Alloc(tensorops.Float32, 1, withShared.Context, withShared.Hidden)
			l.Free(stages.Only(stages.Act(l, st, scheduler.Action{Type: typ}, &mb, x)))
			products, travels, waits := 0, false, false
			for _, op := range l.Ops() {
				switch {
				case op.Kind == tensorops.KindCollective && op.Collective().Later:
					travels, waits = true, false
				case op.Kind == tensorops.KindAwait && travels && !waits:
					hidden = append(hidden, products)
					products, travels, waits = 0, false, true
				case op.Kind == tensorops.KindMatMul && travels:
					products++
				}
			}
			if err := tensorops.Run(dry, l); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		if overlap && !slices.Equal(hidden, want) || !overlap && len(hidden) > 0 {
			t.Errorf("overlap %v: %v products hide exchanges, want %v", overlap, hidden, want)
		}
	}
}

// TestExpertParallelNaN: routers whose scores are not numbers give losses that are not, as without groups, and no failure.
func TestExpertParallelNaN(t *testing.T) {
	c := stages.Config{Family: stages.Qwen3MoE, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, RopeTheta: 1000,
		Experts: stages.ExpertConfig{Count: 4, PerToken: 3, Width: 12}}
	broken := stages.Source(func(p *stages.Param, part string, dst []float32) error {
		err := largeWeights(p, part, dst)
		if strings.HasSuffix(p.Name, "mlp.gate.weight") {
			dst[3] = float32(math.NaN())
		}
		return err
	})
	for _, loss := range trainShared(t, c, stages.Options{Seed: 5, Optimizer: adamw}, 2, 2, broken).losses {
		if !math.IsNaN(loss) {
			t.Errorf("the loss is %g", loss)
		}
	}
}

// TestExpertParallelMemory: a rank of a group holds the weights and the state of its experts only.
func TestExpertParallelMemory(t *testing.T) {
	m := newModel(t, stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 4, FFN: 64, Context: 16, Vocab: 100,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 256}})
	bytes := func(group int) int64 {
		dry := tensorops.NewDryStream()
		o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: tensorops.DryGroup{Members: 8}}}
		if group > 1 {
			o.Experts = stages.ExpertParallel{Group: tensorops.DryGroup{Members: group}}
			if group < 8 {
				o.Experts.Copies = tensorops.DryGroup{Members: 8 / group}
			}
		}
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return dry.Memory().Peak
	}
	experts := int64(2 * 8 * 3 * 64 * 256 * 4) // the bytes of all experts' weights
	all := bytes(1)
	for _, group := range []int64{2, 4, 8} {
		want := all - 3*experts + 3*experts/group // weight and two moments
		if got := bytes(int(group)); math.Abs(float64(got-want)) > 0.02*float64(want) {
			t.Errorf("groups of %d take %d bytes, want about %d; without groups it is %d", group, got, want, all)
		}
	}
}

// TestExpertParallelRefused: groups that do not fit the model or the other groups are refused by name.
func TestExpertParallelRefused(t *testing.T) {
	c := families[4]
	m := newModel(t, c) // of 5 experts
	two := tensorops.DryGroup{Members: 2}
	for want, o := range map[string]stages.Options{
		"2 ranks cannot share 5 experts evenly": {Data: stages.DataParallel{Group: two}, Experts: stages.ExpertParallel{Group: two}},
		"1 expert groups of 5 ranks are not the 2 ranks": {Data: stages.DataParallel{Group: two},
			Experts: stages.ExpertParallel{Group: tensorops.DryGroup{Members: 5}}},
	} {
		_, err := stages.NewStage(m, tensorops.NewDryStream(), []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
		if !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
