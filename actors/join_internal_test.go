package actors

import (
	"errors"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Parts in types of one and two bytes become the whole in that type.
func TestJoinNarrow(t *testing.T) {
	for _, dtype := range []tensorops.DType{tensorops.Uint8, tensorops.BFloat16} {
		size := dtype.Size()
		want := []byte{1, 2, 3, 4, 5, 6, 7, 8}
		part := func(from, to int) stages.Saved {
			return stages.Saved{Name: "m.w", Part: "m", Shape: []int{to - from}, Whole: []int{len(want) / size}, DType: dtype,
				Slice: stages.Slice{}.Range(from, to), Narrow: want[from*size : to*size]}
		}
		got, err := join([]stages.Saved{part(0, 3), part(3, len(want)/size)})
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Narrow, want) || got[0].DType != dtype || got[0].Whole != nil {
			t.Errorf("%v: %+v, %v", dtype, got, err)
		}
		if _, err := join([]stages.Saved{part(0, 3)}); !errors.Is(err, stages.ErrInput) {
			t.Errorf("%v, without the last part: %v", dtype, err)
		}
	}
}

// Parts of a tensor, by columns and by ranges of them, become the whole, which comes where its first
// part does; a number that nobody has is missed.
func TestJoin(t *testing.T) {
	part := func(name string, s stages.Slice, data ...float32) stages.Saved {
		v := stages.Saved{Name: name, Part: "m", Shape: []int{len(data)}, Data: data}
		if (s != stages.Slice{}) {
			v.Slice, v.Whole = s, []int{2, 4}
		}
		return v
	}
	left, right := stages.Slice{Dim: 1, Sections: 1, To: 2}, stages.Slice{Dim: 1, Sections: 1, From: 2, To: 4}
	saved := []stages.Saved{
		part("flat", stages.Slice{}.Range(0, 3), 1, 2, 3), part("whole", stages.Slice{}, 9),
		part("columns", left.Range(1, 4), 2, 5, 6), part("columns", right, 3, 4, 7, 8),
		part("flat", stages.Slice{}.Range(3, 8), 4, 5, 6, 7, 8), part("columns", left.Range(0, 1), 1),
	}
	got, err := join(saved)
	if err != nil || len(got) != 3 || got[0].Name != "flat" || got[1].Name != "whole" || got[2].Name != "columns" {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, v := range []stages.Saved{got[0], got[2]} {
		if v.Whole != nil || !slices.Equal(v.Shape, []int{2, 4}) || !slices.Equal(v.Data, []float32{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("%+v", v)
		}
	}
	if _, err := join(saved[:5]); !errors.Is(err, stages.ErrInput) {
		t.Errorf("without the last part: %v", err)
	}
}

// A part says which it is, and of what; no whole is larger than the grid's ranks can have together.
func TestSliceComes(t *testing.T) {
	e := newEnds(t)
	c := e.coordinator
	v := stages.Saved{Name: "m.w", Whole: []int{4, 5}, Slice: stages.Slice{}.Range(10, 20)}
	tensor := packSlice(stages.Saved{Whole: []int{4, 6}, Slice: stages.Slice{Dim: 1, Sections: 3, From: 1, To: 2}.Range(1, 7)})
	for _, k := range []struct {
		split   bool
		numbers int
		slice   *wire.Slice
		good    bool
	}{
		{false, 10, packSlice(v), false}, // every rank has all of it
		{true, 10, packSlice(v), true},
		{true, 10, tensor, true},
		{true, 4, packSlice(v), false}, // 20 numbers are not those of two ranks
		{true, 1, packSlice(stages.Saved{Whole: []int{257}, Slice: stages.Slice{}.Range(256, 257)}), true},
		{true, 1, packSlice(stages.Saved{Whole: []int{1 << 20}, Slice: stages.Slice{}.Range(1<<20-1, 1<<20)}), false},
	} {
		var err error
		if c.spec.Grid, err = grid.New(grid.Sizes{Tensor: []int{1}, Context: 1, Pipeline: 1, Data: 2, Order: "tp-cp-pp-dp"}); err != nil {
			t.Fatal(err)
		}
		c.spec.SplitState = k.split
		got := stages.Saved{Name: "m.w"}
		if err := c.takeSlice(&got, k.numbers, k.slice); (err == nil) != k.good {
			t.Errorf("%d numbers as %v: %v", k.numbers, k.slice, err)
		} else if back := packSlice(got); k.good && back.String() != k.slice.String() {
			t.Errorf("%v came as %v", k.slice, back)
		}
	}
}
