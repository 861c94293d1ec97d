package stages_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// The slices of all ranks are the whole, each element as often as several ranks have it, and
// putting back what was taken changes nothing.
func TestSlicesAreTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(t, "size")
		split := stages.Split{Sections: rapid.IntRange(1, 3).Draw(t, "sections")}
		copies := 1
		if rapid.Bool().Draw(t, "replicas") {
			copies = rapid.SampledFrom(divisors(size)).Draw(t, "copies")
			split.Units = size / copies
		} else {
			split.Units = rapid.IntRange(size, 3*size).Draw(t, "units")
		}
		shape := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 3).Draw(t, "shape")
		split.Dim = rapid.IntRange(0, len(shape)-1).Draw(t, "dim")
		shape[split.Dim] = split.Sections * split.Units * rapid.IntRange(1, 3).Draw(t, "width")
		n := 1
		for _, d := range shape {
			n *= d
		}
		whole, back, times := make([]float32, n), make([]float32, n), make([]int, n)
		for i := range whole {
			whole[i] = float32(i + 1)
		}
		replicas := rapid.IntRange(1, 3).Draw(t, "replicas that have a range each")
		var all []stages.Slice
		for rank := range size {
			s := split.Slice(shape, rank, size)
			part := product(s.Shape(shape))
			if replicas == 1 {
				all = append(all, s)
			}
			for i := range replicas {
				if from, to := part*i/replicas, part*(i+1)/replicas; replicas > 1 && from < to {
					all = append(all, s.Range(from, to))
				}
			}
		}
		for _, s := range all {
			part := make([]float32, product(s.Shape(shape)))
			if err := s.Take(part, whole, shape); err != nil {
				t.Fatal(err)
			}
			if err := s.Put(back, part, shape); err != nil {
				t.Fatal(err)
			}
			for _, v := range part {
				times[int(v)-1]++
			}
			if s.Take(part[1:], whole, shape) == nil || s.Put(whole[1:], part, shape) == nil {
				t.Fatal("memory of another length was taken")
			}
		}
		for i, k := range times {
			if k != copies {
				t.Fatalf("element %d is in %d slices, want %d", i, k, copies)
			}
		}
		if !slices.Equal(back, whole) {
			t.Fatalf("put together: %v", back)
		}
	})
	for _, bad := range []stages.Slice{
		{Dim: 1, Sections: 1, To: 3}, // of a dimension that is not there
		stages.Slice{}.Range(1, 5), stages.Slice{}.Range(-1, 2), stages.Slice{}.Range(3, 3), stages.Slice{}.Range(2, 0),
		stages.Slice{}.Range(1, -2),
		stages.Slice{Sections: 1, To: 2}.Range(0, 3),
	} {
		if err := bad.Take(make([]float32, 3), make([]float32, 3), []int{3}); !errors.Is(err, stages.ErrInput) {
			t.Errorf("%+v of 3 numbers: %v", bad, err)
		}
	}
}

func divisors(n int) (ds []int) {
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			ds = append(ds, d)
		}
	}
	return ds
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Ranks draw the slices of the weights that the whole model draws. What they save is the whole
// once, and loads into any number of ranks.
func TestTensorParallelWeights(t *testing.T) {
	for name, cfg := range splitModels {
		dev := newDevice(t, 1)
		m := newModel(t, cfg)
		o := stages.Options{Seed: 5, Optimizer: adamw}
		save := func(w *team) map[string][]float32 {
			all := make([][]stages.Saved, len(w.ranks))
			w.each(func(r *teamRank) error {
				return r.run(func(l *tensorops.List) { all[r.rank] = r.stage.Save(l, r.stream.Arena()) })
			})
			out, put := map[string][]float32{}, map[string]int{}
			for rank, part := range all {
				for _, s := range part {
					shape := m.Params[s.Index].Shape
					if s.Whole != nil && !slices.Equal(s.Whole, shape) || !slices.Equal(s.Slice.Shape(shape), s.Shape) {
						t.Errorf("%s, rank %d: %s is saved as %v of %v, slice %+v, its shape is %v", name, rank, s.Name, s.Shape, s.Whole, s.Slice, shape)
					}
					if out[s.Name] == nil {
						out[s.Name] = make([]float32, product(shape))
					}
					if err := s.Slice.Put(out[s.Name], s.Data, shape); err != nil {
						t.Fatal(err)
					}
					put[s.Name] += len(s.Data)
				}
			}
			for n, v := range out {
				if put[n] != len(v) {
					t.Errorf("%s: of %s %d numbers are saved, it has %d", name, n, put[n], len(v))
				}
			}
			return out
		}
		same := func(what string, got, want map[string][]float32) {
			if len(got) != len(want) {
				t.Errorf("%s, %s: %d tensors of %d", name, what, len(got), len(want))
			}
			for n, v := range want {
				if !slices.Equal(got[n], v) {
					t.Errorf("%s, %s: %s differs", name, what, n)
				}
			}
		}
		initial := func(size int) *team {
			w := newTeam(t, dev, m, size, nil, o)
			w.each(func(r *teamRank) error { return r.stage.Load(stages.InitWeights(7), true) })
			return w
		}
		four := initial(4)
		same("drawn by 4", save(four), save(initial(1)))
		for step := range 2 {
			four.step(step+1, microbatches(cfg, int64(step+1), 2, 2))
		}
		trained := save(four)
		two := newTeam(t, dev, m, 2, nil, o)
		two.each(func(r *teamRank) error {
			return r.stage.Load(stages.Sliced(func(p *stages.Param, part string, dst []float32) error {
				key := p.Name
				if part != "" {
					key = part + "." + key
				}
				copy(dst, trained[key])
				return nil
			}), true)
		})
		same("of 4 loaded by 2", save(two), trained)
	}
}

// A weight that embedding and head share may lie on two stages of the pipeline, each of them
// split: each rank exchanges its slice with its like.
func TestTensorParallelTied(t *testing.T) {
	cfg := splitModels["gpt2, mtp"]
	dev := newDevice(t, 2)
	m := newModel(t, cfg)
	o := stages.Options{Seed: 5, Optimizer: adamw, StepTokens: 4 * cfg.Context}
	mbs := microbatches(cfg, 1, 4, 2)
	want, losses := newTeam(t, dev, m, 1, nil, o).grads(mbs, false)
	_ = losses
	const cut, size = 2, 2
	groups := [][]*collective.Group{collective.Local("first", size), collective.Local("last", size)}
	specs := []stages.ChunkSpec{{Chunk: 0, First: 0, Last: cut}, {Chunk: 1, First: cut, Last: len(m.Symbols())}}
	ranks := make([][2]*teamRank, size)
	w := &team{t: t, model: m, group: groups[0]}
	for rank := range size {
		for i, spec := range specs {
			o := o
			o.Tensor = stages.TensorParallel{Group: groups[i][rank], Sequence: true}
			s := dev.NewStream("tied")
			t.Cleanup(s.Close)
			st, err := stages.NewStage(m, s, []stages.ChunkSpec{spec}, o)
			if err != nil {
				t.Fatal(err)
			}
			ranks[rank][i] = &teamRank{team: w, rank: rank, stage: st, stream: s}
		}
		w.ranks = append(w.ranks, ranks[rank][0])
	}
	saved := make([][]stages.Saved, size)
	w.each(func(r *teamRank) error {
		first, last := ranks[r.rank][0], ranks[r.rank][1]
		both := []*teamRank{first, last}
		do := func(r *teamRank, record func(l *tensorops.List)) {
			if err := r.run(record); err != nil {
				panic(err)
			}
		}
		for _, r := range both {
			if err := r.stage.Load(largeWeights, false); err != nil {
				return err
			}
		}
		for i := range mbs {
			var x, dy tensorops.Tensor
			do(first, func(l *tensorops.List) { x = stages.Only(first.stage.Forward(l, 0, &mbs[i], x)) })
			do(last, func(l *tensorops.List) { last.stage.Forward(l, 1, &mbs[i], x) })
			do(last, func(l *tensorops.List) { dy = stages.Only(last.stage.Backward(l, 1, i)) })
			do(first, func(l *tensorops.List) { first.stage.Backward(l, 0, i, dy) })
		}
		var sent [2][]stages.TiedGrad
		for k, r := range both {
			do(r, func(l *tensorops.List) {
				sent[k] = r.stage.TiedGrads(l, []stages.TensorPlace{{Rank: r.rank, Size: size}})
			})
		}
		for k, r := range both {
			if err := r.stage.TakeTied(sent[1-k][0]); err != nil {
				return err
			}
			do(r, r.stage.GradNorms)
		}
		for _, r := range both {
			do(r, func(l *tensorops.List) { saved[r.rank] = append(saved[r.rank], r.stage.WholeGrads(l)...) })
		}
		return nil
	})
	got := w.join(saved)
	if d := apart(together(got), together(want)); !(d < 1e-6) {
		t.Errorf("the gradient is off by %.3g of its norm", d)
	}
}

// What can't be shared is refused by its name, with the numbers.
func TestTensorParallelRefusals(t *testing.T) {
	llama := splitModels["llama"]
	with := func(change func(c *stages.Config)) stages.Config {
		c := llama
		change(&c)
		return c
	}
	dev := newDevice(t, 1)
	s := dev.NewStream("refused")
	defer s.Close()
	for _, c := range []struct {
		cfg  stages.Config
		size int
		says []string
	}{
		{with(func(c *stages.Config) { c.Heads, c.KVHeads = 6, 6 }), 4, []string{"6 heads", "of 4"}},
		{with(func(c *stages.Config) { c.Heads, c.KVHeads = 12, 6 }), 4, []string{"6 kv_heads", "of 4"}},
		{with(func(c *stages.Config) { c.Vocab = 3 }), 4, []string{"vocabulary of 3"}},
		{stages.Config{Family: stages.MLP, Layers: 1, Hidden: 8, Fields: []stages.Field{
			{Name: "x", DType: tensorops.Float32, Shape: []int{4}}, {Name: "y", DType: tensorops.Int32, Classes: 3}}}, 2,
			[]string{`"mlp"`, "cannot be split"}},
	} {
		m := newModel(t, c.cfg)
		o := stages.Options{Optimizer: adamw, Tensor: stages.TensorParallel{Group: tensorops.DryGroup{Members: c.size}}}
		_, err := stages.NewStage(m, s, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
		if !errors.Is(err, stages.ErrModel) {
			t.Errorf("%v: %v", c.says, err)
			continue
		}
		for _, part := range append(c.says, m.Names()...) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}

	m := newModel(t, llama)
	o := stages.Options{Optimizer: adamw, Tensor: stages.TensorParallel{Group: tensorops.DryGroup{Members: 2}, Sequence: true}}
	st, err := stages.NewStage(m, s, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stages.NewDecoder(st); !errors.Is(err, stages.ErrModel) {
		t.Errorf("a decoder of half a model: %v", err)
	}
	mb := stages.Microbatch{Step: 1, Sequences: 1, Positions: 7, Tokens: make([]int32, 7), Targets: make([]int32, 7), Train: true}
	l := s.NewList()
	st.Forward(l, 0, &mb)
	if err := tensorops.Run(s, l); !errors.Is(err, stages.ErrInput) || !strings.Contains(err.Error(), "7 positions") {
		t.Errorf("an odd number of positions: %v", err)
	}
	mb = stages.Microbatch{Step: 1, Sequences: 1, Positions: 8, Tokens: []int32{0, 1, 2, 3, 99, 5, 6, 7}, Targets: make([]int32, 8),
		Train: true}
	l = s.NewList()
	st.Forward(l, 0, &mb)
	if err := tensorops.Run(s, l); !errors.Is(err, tensorops.ErrToken) || !strings.Contains(err.Error(), "99") {
		t.Errorf("a token beyond the vocabulary: %v", err)
	}
}

// Frozen layers have no gradients on any rank, and validation has the whole model's loss.
func TestTensorParallelFrozen(t *testing.T) {
	cfg := splitModels["qwen3"]
	m := newModel(t, cfg)
	if err := m.Freeze([]string{"embed", "0"}); err != nil {
		t.Fatal(err)
	}
	dev := newDevice(t, 2)
	mbs := microbatches(cfg, 1, 4, 2)
	mbs[1].Train = false
	// The embedding's weight and the frozen layer's products are bfloat16.
	low := stages.Options{Seed: 5, Optimizer: adamw, BF16: true, Residual: tensorops.BFloat16}
	want, losses := newTeam(t, dev, m, 1, nil, low).grads(mbs, false)
	low.Tensor.Sequence = true
	got, gotLosses := newTeam(t, dev, m, 2, []int{2}, low).grads(mbs, false)
	compare(t, "frozen, bfloat16", got, want, gotLosses, losses, 0.03)
	o := stages.Options{Seed: 5, Optimizer: adamw}
	want, losses = newTeam(t, dev, m, 1, nil, o).grads(mbs, false)
	for _, size := range []int{2, 4} {
		o.Tensor.Sequence = size == 2
		w := newTeam(t, dev, m, size, []int{2}, o)
		got, gotLosses := w.grads(mbs, false)
		compare(t, "frozen", got, want, gotLosses, losses, 1e-6)
	}
}
