package actors

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestPlacedState: the state from which a stage is built arrives where the stage wants it, once. What is for the shadow that is here, or
// has another size, gets memory of its own.
func TestPlacedState(t *testing.T) {
	for name, c := range map[string]struct {
		shadow, dims int
		request      uint64
		placed       bool
	}{
		"wanted":       {1, 4, 3, true},
		"for a shadow": {0, 4, 3, false},
		"another size": {1, 5, 3, false},
		"not asked":    {1, 4, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, dst := newEnds(t), make([]float32, 4)
			r := NewWeightReader()
			r.waiting[3] = &reading{make(chan *Weight, 1), dst}
			e.stages.reader = r
			sent := &RankState{Header: e.header, Request: c.request, Rank: 1, Shadow: c.shadow, Tensor: e.tensor(t, c.dims)}
			p, err := e.coordinator.Pack(sent)
			if err != nil {
				t.Fatal(err)
			}
			for _, placed := range []bool{c.placed, false} {
				got, err := e.stages.Take(p.Message, []int{c.dims * tensorops.Float32.Size()}, "w1")
				if err != nil {
					t.Fatal(err)
				}
				copy(got.Parts[0], p.Parts[0])
				m := got.Message.(*RankState)
				if m.placed != placed || m.Tensor.Valid() == placed {
					t.Errorf("it was placed: %t, want %t; the message has a tensor: %t", m.placed, placed, m.Tensor.Valid())
				}
				got.Release()
			}
			if want := tensorops.Elements[float32](sent.Tensor); slices.Equal(dst, want) != c.placed {
				t.Errorf("%v arrived of %v", dst, want)
			}
			p.Release()
		})
	}
}
