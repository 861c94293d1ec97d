package tensorops_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// members is a group of as many, in which nobody starts anything.
type members int

func (m members) Size() int                      { return int(m) }
func (members) Rank() int                        { return 0 }
func (members) Start(*tensorops.Op, func(error)) {}

// TestAwaitOne: a list waits for each of its collectives once, and for none that it has not begun.
func TestAwaitOne(t *testing.T) {
	x, err := tensorops.NewTensor(newArena(), tensorops.Float32, 3)
	if err != nil {
		t.Fatal(err)
	}
	a := tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: x, Src: x, Group: members(2)}
	l := newList()
	for i := range 4 {
		if n := l.Begin(a); n != i+1 {
			t.Errorf("collective %d has number %d", i+1, n)
		}
	}
	var waits []int
	wait := func(record func(), open int) {
		t.Helper()
		from := len(l.Ops())
		record()
		for i := range l.Ops()[from:] {
			waits = append(waits, l.Ops()[from+i].Await().Number)
		}
		if l.Begun() != open {
			t.Errorf("after %v: %d are open, want %d", waits, l.Begun(), open)
		}
	}
	wait(func() { l.AwaitOne(3) }, 3)
	wait(func() { l.AwaitOne(3) }, 3) // again: nothing
	wait(func() { l.AwaitOne(1) }, 2)
	wait(l.Await, 0)
	wait(func() { l.AwaitOne(4) }, 0) // the wait for all was for it, too
	if want := []int{3, 1, 0}; !slices.Equal(waits, want) {
		t.Errorf("waits for %v, want %v", waits, want)
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
	for _, number := range []int{-1, 0, 5} {
		l := newList()
		for range 4 {
			l.Begin(a)
		}
		if l.AwaitOne(number); !errors.Is(l.Err(), tensorops.ErrShape) {
			t.Errorf("a wait for collective %d of 4: %v", number, l.Err())
		}
	}
}

func TestCollectiveShapes(t *testing.T) {
	arena := newArena()
	tensor := func(d tensorops.DType, shape ...int) tensorops.Tensor {
		x, err := tensorops.NewTensor(arena, d, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	f := func(shape ...int) tensorops.Tensor { return tensor(tensorops.Float32, shape...) }
	ids := tensor(tensorops.Int32, 4)
	const two = members(2)
	for _, c := range []struct {
		name   string
		record func(l *tensorops.List)
		ok     bool
	}{
		{"all_reduce", func(l *tensorops.List) { l.AllReduce(f(3, 5), tensorops.Max, two) }, true},
		{"all_reduce by no reduction", func(l *tensorops.List) { l.AllReduce(f(3), 77, two) }, false},
		{"the mean of ids", func(l *tensorops.List) { l.AllReduce(ids, tensorops.Mean, two) }, false},
		{"the largest id", func(l *tensorops.List) { l.AllReduce(ids, tensorops.Max, two) }, true},
		{"columns", func(l *tensorops.List) { l.AllReduce(f(3, 5).Columns(0, 2), tensorops.Sum, two) }, false},
		{"reduce_scatter along the first", func(l *tensorops.List) { l.ReduceScatter(f(3, 5), f(6, 5), 0, tensorops.Sum, two) }, true},
		{"reduce_scatter along the second", func(l *tensorops.List) { l.ReduceScatter(f(6, 5), f(6, 10), 1, tensorops.Sum, two) }, true},
		{"reduce_scatter that does not divide", func(l *tensorops.List) { l.ReduceScatter(f(3, 5), f(7, 5), 0, tensorops.Sum, two) }, false},
		{"reduce_scatter along the third of two", func(l *tensorops.List) { l.ReduceScatter(f(3, 5), f(6, 5), 2, tensorops.Sum, two) }, false},
		{"reduce_scatter backwards", func(l *tensorops.List) { l.ReduceScatter(f(6, 5), f(3, 5), 0, tensorops.Sum, two) }, false},
		{"all_gather", func(l *tensorops.List) { l.AllGather(f(6, 10), f(6, 5), 1, two) }, true},
		{"all_gather along dimension -1", func(l *tensorops.List) { l.AllGather(f(6, 10), f(6, 5), -1, two) }, false},
		{"all_gather of another type", func(l *tensorops.List) { l.AllGather(f(8), ids, 0, two) }, false},
		{"broadcast", func(l *tensorops.List) { l.Broadcast(f(), 1, two) }, true},
		{"broadcast from nobody", func(l *tensorops.List) { l.Broadcast(f(3), 2, two) }, false},
		{"all_to_all", func(l *tensorops.List) { l.AllToAll(f(4, 3), f(4, 3), two) }, true},
		{"all_to_all that does not divide", func(l *tensorops.List) { l.AllToAll(f(5, 3), f(5, 3), two) }, false},
		{"all_to_all of a number", func(l *tensorops.List) { l.AllToAll(f(), f(), two) }, false},
		{"all_to_all_v", func(l *tensorops.List) { l.AllToAllV(f(9, 3), f(4, 3), tensor(tensorops.Int32, 2, 5), false, two) }, true},
		{"all_to_all_v of experts that do not divide",
			func(l *tensorops.List) { l.AllToAllV(f(9, 3), f(4, 3), tensor(tensorops.Int32, 2, 4), false, two) }, false},
		{"all_to_all_v of other members",
			func(l *tensorops.List) { l.AllToAllV(f(9, 3), f(4, 3), tensor(tensorops.Int32, 3, 4), true, two) }, false},
		{"all_to_all_v of other rows",
			func(l *tensorops.List) { l.AllToAllV(f(9, 2), f(4, 3), tensor(tensorops.Int32, 2, 5), true, two) }, false},
		{"all_to_all_v without a table", func(l *tensorops.List) { l.AllToAllV(f(9, 3), f(4, 3), tensorops.Tensor{}, true, two) }, false},
		{"ring_forward", func(l *tensorops.List) { l.RingForward(f(5, 3), f(5, 3), two) }, true},
		{"ring_forward of another shape", func(l *tensorops.List) { l.RingForward(f(5, 3), f(3, 5), two) }, false},
		{"nothing", func(l *tensorops.List) { l.RingForward(tensorops.Tensor{}, f(3), two) }, false},
		{"barrier", func(l *tensorops.List) { l.Barrier(two) }, true},
		{"barrier of nobody", func(l *tensorops.List) { l.Barrier(nil) }, false},
	} {
		l := newList()
		if c.record(l); (l.Err() == nil) != c.ok || !c.ok && !errors.Is(l.Err(), tensorops.ErrShape) {
			t.Errorf("%s: error %v", c.name, l.Err())
		}
	}
}
