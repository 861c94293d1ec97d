package stages_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// shadowOf makes the shadow of a rank of a pipe, with the rank's state.
func shadowOf(t *testing.T, p *pipe, cuts, ranks []int, rank int, o stages.Options) (*stages.Shadow, tensorops.Stream) {
	t.Helper()
	var specs []stages.ChunkSpec
	from, first := 0, -1
	for i, to := range append(slices.Clone(cuts), len(p.model.Symbols())) {
		if ranks[i] == rank {
			if specs = append(specs, stages.ChunkSpec{Chunk: i, First: from, Last: to}); first < 0 {
				first = i
			}
		}
		from = to
	}
	stream := p.dev.NewStream("shadow")
	s, err := stages.NewShadow(p.model, stream, specs, o)
	if err != nil {
		t.Fatal(err)
	}
	arena := tensorops.NewHostMemory(0).NewArena("copies")
	defer arena.Close()
	for _, part := range s.Parts() {
		var copied tensorops.Tensor
		p.run(first, func(l *tensorops.List) { copied, err = p.stages[first].CopyState(l, arena, part.Param, part.Part) })
		if err != nil {
			t.Fatal(err)
		}
		l := stream.NewList()
		if err := s.Put(l, part, copied); err != nil {
			t.Fatal(err)
		}
		if err := tensorops.Run(stream, l); err != nil {
			t.Fatal(err)
		}
	}
	return s, stream
}

// TestShadow: a shadow that gets a rank's finished gradients and updates has the rank's trained weights and optimizer state to the bit,
// and nothing that the rank has frozen.
func TestShadow(t *testing.T) {
	muon, momentum, average := adamw, adamw, adamw
	muon.Name, muon.Momentum = stages.Muon, 0.95
	momentum.Name, momentum.Momentum = stages.SGD, 0.9
	average.EMA = 0.9
	adapted := families[1]
	adapted.Tie, adapted.Adapter = false, &stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{"q_proj", "v_proj"}}
	for _, c := range []struct {
		name   string
		models []stages.Config
		cuts   []int
		ranks  []int
		o      stages.Options
	}{
		{"tied over two ranks", append(slices.Clone(families), mtpFamily), []int{2}, []int{0, 1},
			stages.Options{Optimizer: adamw, Pack: true}},
		{"two chunks a rank, bfloat16", families, []int{1, 3}, []int{0, 1, 0},
			stages.Options{Optimizer: average, BF16: true, Residual: tensorops.BFloat16}},
		{"brief", families[1:], []int{1, 3}, []int{0, 1, 2}, stages.Options{Optimizer: adamw, BriefGrads: true}},
		{"muon", families[1:], []int{2}, []int{0, 1}, stages.Options{Optimizer: muon}},
		{"momentum", families[:1], []int{2}, []int{0, 1}, stages.Options{Optimizer: momentum}},
		{"adapter", []stages.Config{adapted}, []int{2}, []int{0, 1}, stages.Options{Optimizer: adamw}},
	} {
		for _, cfg := range c.models {
			t.Run(cfg.Family+", "+c.name, func(t *testing.T) {
				m, o := newModel(t, cfg), c.o
				o.Seed, o.StepTokens = 5, 8*cfg.Context
				p := newPipeOn(t, newDevice(t, 1), m, c.cuts, c.ranks, o)
				held := make(map[*stages.Stage]*stages.Shadow)
				streams := make(map[*stages.Stage]tensorops.Stream)
				p.eachStage(func(v int, s *stages.Stage) { held[s], streams[s] = shadowOf(t, p, c.cuts, c.ranks, c.ranks[v], o) })
				for step := range 3 {
					_, _, u := p.passes(step+1, microbatches(cfg, int64(step+1), 8, 2), true)
					p.eachStage(func(_ int, s *stages.Stage) {
						shadow, grads := held[s], make([]tensorops.Tensor, held[s].Len())
						for _, g := range s.Gradients() {
							at, err := shadow.Place(g)
							if err != nil {
								t.Fatal(err)
							}
							grads[at] = g.Grad
						}
						l := streams[s].NewList()
						shadow.Fold(l, u, grads)
						if err := tensorops.Run(streams[s], l); err != nil {
							t.Fatal(err)
						}
					})
					p.end(applied, u)
					p.eachStage(func(v int, s *stages.Stage) { sameAsShadow(t, p, v, held[s], streams[s]) })
				}
			})
		}
	}
}

func sameAsShadow(t *testing.T, p *pipe, v int, s *stages.Shadow, stream tensorops.Stream) {
	t.Helper()
	arena := tensorops.NewHostMemory(0).NewArena("copies")
	defer arena.Close()
	for _, part := range s.Parts() {
		var want tensorops.Tensor
		var err error
		p.run(v, func(l *tensorops.List) { want, err = p.stages[v].CopyState(l, arena, part.Param, part.Part) })
		if err != nil {
			t.Fatal(err)
		}
		l := stream.NewList()
		got, err := s.CopyState(l, arena, part.Param, part.Part)
		if err == nil {
			err = tensorops.Run(stream, l)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(tensorops.Bytes(got), tensorops.Bytes(want)) {
			t.Fatalf("%v differs from the rank's", part)
		}
	}
}

// TestShadowRefuses: what a shadow cannot hold is refused, not wrong.
func TestShadowRefuses(t *testing.T) {
	cfg := families[1]
	m, o := newModel(t, cfg), stages.Options{Seed: 5, Optimizer: adamw}
	p := newPipeOn(t, newDevice(t, 1), m, []int{2}, []int{0, 1}, o)
	s, stream := shadowOf(t, p, []int{2}, []int{0, 1}, 0, o)
	arena := tensorops.NewHostMemory(0).NewArena("gradients")
	defer arena.Close()
	small, err := tensorops.NewTensor(arena, tensorops.Float32, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]func() error{
		"an unknown parameter": func() error { _, err := s.Place(stages.Gradient{Param: 1 << 20, Grad: small}); return err },
		"another shape":        func() error { _, err := s.Place(stages.Gradient{Param: 0, Grad: small}); return err },
		"no tensor":            func() error { _, err := s.Place(stages.Gradient{Param: 0}); return err },
		"an unknown part":      func() error { return s.Put(stream.NewList(), stages.StatePart{Param: "none"}, small) },
		"a small part":         func() error { return s.Put(stream.NewList(), s.Parts()[0], small) },
		"too few gradients": func() error {
			l := stream.NewList()
			s.Fold(l, stages.Update{Count: 1}, nil)
			return tensorops.Run(stream, l)
		},
	} {
		if err := got(); !errors.Is(err, stages.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.Optimizer.State = tensorops.BFloat16
	if _, err := stages.NewShadow(m, stream, nil, o); !errors.Is(err, stages.ErrModel) {
		t.Errorf("a state in bfloat16: %v", err)
	}
}
