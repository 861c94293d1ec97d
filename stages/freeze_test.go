package stages_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

func tiny(t *testing.T, freeze ...string) *stages.Model {
	t.Helper()
	m, err := stages.NewModel(stages.Config{Family: stages.Llama, Layers: 4, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 16, Context: 8, Vocab: 16,
		RopeTheta: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	if len(freeze) > 0 {
		if err := m.Freeze(freeze); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestFreezeNames(t *testing.T) {
	m := tiny(t)
	if got, want := m.LayerNames(), []string{"embed", "0", "1", "2", "3", "head"}; !slices.Equal(got, want) {
		t.Errorf("layers are called %q, want %q", got, want)
	}
	for _, c := range []struct {
		freeze []string
		want   string
	}{
		{[]string{"4"}, `cannot freeze "4": the layers are "embed", "0-3", "head"`},
		{[]string{"2-1"}, `cannot freeze "2-1"`},
		{[]string{"0-"}, `cannot freeze "0-"`},
		{[]string{""}, `cannot freeze ""`},
		{[]string{"embed-head"}, "leave at least one to train"},
		{[]string{"embed", "0-3", "head"}, "leave at least one to train"},
	} {
		if err := tiny(t).Freeze(c.freeze); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("freeze %q: %v, want %q", c.freeze, err, c.want)
		}
	}
	all := m.Parameters()
	if got := tiny(t, "embed", "0-3").Trained(); got != 8+16*8 { // the norm and the head
		t.Errorf("%d weights are trained of %d, want the head's %d", got, all, 8+16*8)
	}
}

// TestFrozenBelow: a chunk below the lowest layer that is trained has no backward pass, and no
// gradient goes to it.
func TestFrozenBelow(t *testing.T) {
	m := tiny(t, "embed", "0-1")
	chunks := []stages.ChunkSpec{{Chunk: 0, First: 0, Last: 2}, {Chunk: 1, First: 2, Last: 4}, {Chunk: 2, First: 4, Last: 6}}
	routes := m.Routes(chunks)
	for i, want := range [][2]int{{0, 0}, {0, 1}, {1, 0}} {
		if got := [2]int{len(routes[i].GradIns), len(routes[i].GradOuts)}; got != want {
			t.Errorf("chunk %d returns and takes %d gradients, want %d", i, got, want)
		}
	}
	dry := tensorops.NewDryStream()
	s, err := stages.NewStage(m, dry, chunks, stages.Options{Optimizer: stages.Optimizer{Name: stages.AdamW}})
	if err != nil {
		t.Fatal(err)
	}
	ids, empty := make([]int32, 8), dry.Memory().InUse
	mb := stages.Microbatch{Step: 1, Sequences: 1, Positions: 8, Tokens: ids, Targets: ids, Train: true}
	l := dry.NewList()
	x := s.Forward(l, 0, &mb)
	if err := tensorops.Run(dry, l); err != nil {
		t.Fatal(err)
	}
	if held := dry.Memory().InUse - empty; held > 2*8*8*4 { // the output and the ids
		t.Errorf("a forward that no backward follows keeps %d bytes, and its output has %d", held, 8*8*4)
	}
	l = dry.NewList()
	if dx := s.Backward(l, 0, 0); len(dx) > 0 || len(l.Ops()) > 0 || l.Err() != nil {
		t.Errorf("the backward of a frozen chunk has %d operations and %d gradients, %v", len(l.Ops()), len(dx), l.Err())
	}
	x = s.Forward(l, 1, &mb, x...)
	s.Forward(l, 2, &mb, x...)
	dx := s.Backward(l, 2, 0)
	if len(dx) != 1 {
		t.Fatalf("chunk 2 returns %d gradients", len(dx))
	}
	if dx = s.Backward(l, 1, 0, dx...); len(dx) > 0 || l.Err() != nil {
		t.Errorf("chunk 1 returns %d gradients, which nobody needs, %v", len(dx), l.Err())
	}
	if err := tensorops.Run(dry, l); err != nil {
		t.Fatal(err)
	}
	if n := s.InFlight(); n > 0 {
		t.Errorf("%d outputs are held", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
