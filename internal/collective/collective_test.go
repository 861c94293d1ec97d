package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is a testing.T or a rapid.T.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// maker makes the members of a group, and returns what ends it.
type maker func(t fataler, name string, n int) ([]*collective.Group, func())

func local(_ fataler, name string, n int) ([]*collective.Group, func()) {
	members := collective.Local(name, n)
	return members, func() {
		for _, g := range members {
			g.Leave(nil)
		}
	}
}

var arena = tensorops.NewHostMemory(0).NewArena("test")

func tensor(t fataler, d tensorops.DType, shape ...int) tensorops.Tensor {
	t.Helper()
	x, err := tensorops.NewTensor(arena, d, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// fill makes numbers of which sums depend on their order.
func fill(x tensorops.Tensor, random *rand.Rand) {
	var v values
	for range x.Len() {
		f := random.NormFloat64() * math.Exp2(float64(random.IntN(12)))
		switch x.DType() {
		case tensorops.Float64:
			v.d = append(v.d, f)
		case tensorops.Int32:
			v.i = append(v.i, int32(random.Uint32()))
		default:
			v.f = append(v.f, float32(f))
		}
	}
	copy(tensorops.Bytes(x), v.bytesOf(x.DType()))
}

func wait(t fataler, h *collective.Handle) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := h.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("a collective did not end")
	}
	return err
}

// draw draws a collective among n members, and the shapes of its tensors.
func draw(t *rapid.T, n int) (a tensorops.CollectiveArgs, d tensorops.DType, src, dst []int) {
	a.What = rapid.SampledFrom([]tensorops.Collective{tensorops.AllReduce, tensorops.ReduceScatter, tensorops.AllGather, tensorops.Broadcast,
		tensorops.AllToAll, tensorops.RingForward}).Draw(t, "what")
	d = rapid.SampledFrom([]tensorops.DType{tensorops.Float32, tensorops.BFloat16, tensorops.Int32, tensorops.Float64}).Draw(t, "dtype")
	reductions := []tensorops.Reduction{tensorops.Sum, tensorops.Max, tensorops.Min, tensorops.Product, tensorops.Mean}
	if d == tensorops.Int32 {
		reductions = reductions[:4]
	}
	a.How = rapid.SampledFrom(reductions).Draw(t, "how")
	src = rapid.SliceOfN(rapid.IntRange(0, 9), 1, 4).Draw(t, "shape")
	if rapid.Bool().Draw(t, "long") { // several blocks and chunks
		src[len(src)-1] = rapid.IntRange(1000, 50000).Draw(t, "length")
	}
	for i := range src[:len(src)-1] {
		if src[len(src)-1] > 9 {
			src[i] = min(src[i], 2)
		}
	}
	dst = append([]int(nil), src...)
	a.Dim = rapid.IntRange(0, len(src)-1).Draw(t, "dim")
	a.Root = rapid.IntRange(0, n-1).Draw(t, "root")
	switch a.What {
	case tensorops.ReduceScatter:
		src[a.Dim] *= n
	case tensorops.AllGather:
		dst[a.Dim] *= n
	case tensorops.AllToAll:
		src[0], dst[0] = src[0]*n, dst[0]*n
	}
	return a, d, src, dst
}

// testAgainstReference runs collectives in flight, several at a time, and compares all bits.
func testAgainstReference(t *testing.T, make maker) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "members")
		members, end := make(t, "dp of stage 1", n)
		defer end()
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		type run struct {
			args []tensorops.CollectiveArgs
			want [][]byte
		}
		var runs []run
		for range rapid.IntRange(1, 4).Draw(t, "collectives") {
			a, d, src, dst := draw(t, n)
			var r run
			var all []values
			inPlace := a.What == tensorops.AllReduce || a.What == tensorops.Broadcast
			part := (a.What == tensorops.ReduceScatter || a.What == tensorops.AllGather) && a.Dim == 0 && rapid.Bool().Draw(t, "part of the whole")
			for rank := range n {
				a.Src = tensor(t, d, src...)
				switch {
				case inPlace:
					a.Dst = a.Src
				case part && a.What == tensorops.AllGather:
					a.Dst = tensor(t, d, dst...)
					rows := a.Src.Rows()
					if len(src) == 1 { // RowRange takes one dimension as one row
						a.Src = a.Dst.View(dst[0], 1).RowRange(rank*src[0], (rank+1)*src[0]).View(src...)
					} else {
						a.Src = a.Dst.RowRange(rank*rows, (rank+1)*rows).View(src...)
					}
				case part:
					rows := a.Src.Rows() / n
					if len(src) == 1 {
						a.Dst = a.Src.View(src[0], 1).RowRange(rank*dst[0], (rank+1)*dst[0]).View(dst...)
					} else {
						a.Dst = a.Src.RowRange(rank*rows, (rank+1)*rows).View(dst...)
					}
				default:
					a.Dst = tensor(t, d, dst...)
				}
				fill(a.Src, random)
				all = append(all, read(a.Src))
				r.args = append(r.args, a)
			}
			r.want = reference(r.args[0], all)
			runs = append(runs, r)
		}
		handles := make2[*collective.Handle](n, len(runs))
		var wg sync.WaitGroup
		for rank, g := range members {
			wg.Go(func() {
				for k, r := range runs {
					handles[rank][k] = g.Do(r.args[rank])
				}
			})
		}
		wg.Wait()
		for k, r := range runs {
			for rank := range members {
				if err := wait(t, handles[rank][k]); err != nil {
					t.Fatal(err)
				}
				if got := tensorops.Bytes(r.args[rank].Dst); !bytes.Equal(got, r.want[rank]) {
					t.Fatalf("collective %d, %v of %v at rank %d: other bits than the reference", k, r.args[rank].What, r.args[rank].Src, rank)
				}
			}
		}
	})
}

func make2[E any](n, m int) [][]E {
	list := make([][]E, n)
	for i := range list {
		list[i] = make([]E, m)
	}
	return list
}

func TestLocalReference(t *testing.T) { testAgainstReference(t, local) }

// testBarrier: nobody is through before all have come.
func testBarrier(t *testing.T, make maker) {
	members, end := make(t, "world", 3)
	defer end()
	first, second := members[0].Barrier(), members[1].Barrier()
	select {
	case <-first.Ended():
		t.Fatal("a barrier ended without all members")
	case <-time.After(10 * time.Millisecond):
	}
	if s, ok := members[1].Status(); !ok || s.Collective != 1 || s.What != "barrier" || fmt.Sprint(s.Missing) != "[2]" {
		t.Errorf("status %+v, %v", s, ok)
	} else if want := "group world, collective 1: barrier waits for rank 2"; s.String() != want {
		t.Errorf("%q, not %q", s, want)
	}
	for _, h := range []*collective.Handle{members[2].Barrier(), first, second} {
		if err := wait(t, h); err != nil {
			t.Error(err)
		}
	}
	if s, ok := members[1].Status(); ok {
		t.Errorf("status %v of nothing", s)
	}
}

func TestLocalBarrier(t *testing.T) { testBarrier(t, local) }

// testMismatch: both ends are told at once who brings what, and the group is over.
func testMismatch(t *testing.T, make maker) {
	x := tensor(t, tensorops.Float32, 3, 4)
	y := tensor(t, tensorops.Float32, 4)
	whole, ids := tensor(t, tensorops.Float32, 12), tensor(t, tensorops.Int32, 4)
	for _, c := range []struct {
		name string
		a, b tensorops.CollectiveArgs
		says string
	}{
		{name: "collective", a: tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: x, Src: x},
			b:    tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: whole, Src: y},
			says: "all_reduce sum float32[3 4]|all_gather float32[4] along dimension 0"},
		{name: "reduction", a: tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: x, Src: x},
			b:    tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: x, Src: x, How: tensorops.Max},
			says: "all_reduce sum float32[3 4]|all_reduce max float32[3 4]"},
		{name: "shape", a: tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: x, Src: x},
			b:    tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: y, Src: y},
			says: "float32[3 4]|float32[4]"},
		{name: "type", a: tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: y, Src: y},
			b:    tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: ids, Src: ids},
			says: "float32[4]|int32[4]"},
		{name: "root", a: tensorops.CollectiveArgs{What: tensorops.Broadcast, Dst: y, Src: y},
			b:    tensorops.CollectiveArgs{What: tensorops.Broadcast, Dst: y, Src: y, Root: 1},
			says: "broadcast float32[4] from rank 0|broadcast float32[4] from rank 1"},
		{name: "barrier", a: tensorops.CollectiveArgs{What: tensorops.Broadcast, Dst: y, Src: y},
			b:    tensorops.CollectiveArgs{What: tensorops.Barrier},
			says: "broadcast float32[4] from rank 0|barrier"},
	} {
		t.Run(c.name, func(t *testing.T) {
			members, end := make(t, "dp of stage 1", 3)
			defer end()
			before := []*collective.Handle{members[0].Barrier(), members[1].Barrier(), members[2].Barrier()}
			first := members[0].Do(c.a)
			if err := errors.Join(wait(t, before[0]), wait(t, before[1]), wait(t, before[2])); err != nil {
				t.Fatal(err)
			}
			second, third := members[1].Do(c.a), members[2].Do(c.b)
			for i, h := range []*collective.Handle{first, second, third, members[0].Barrier(), members[1].Barrier()} {
				err := wait(t, h)
				if err == nil && i < 2 && c.a.What == tensorops.Broadcast {
					continue // the root needs nothing of the others, and rank 1 only the root
				}
				if !errors.Is(err, collective.ErrMismatch) {
					t.Fatalf("error %v", err)
				}
				for _, part := range append(strings.Split(c.says, "|"), "group dp of stage 1, collective 2", "rank 2") {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
				// Rank 1 brings what rank 0 does: either is named.
				if !strings.Contains(err.Error(), "rank 0") && !strings.Contains(err.Error(), "rank 1") {
					t.Errorf("%q does not say whom rank 2 differs from", err)
				}
			}
		})
	}
}

func TestLocalMismatch(t *testing.T) { testMismatch(t, local) }

// testLeave: who leaves ends what the others wait for, by name.
func testLeave(t *testing.T, make maker) {
	members, end := make(t, "tp of stage 0", 3)
	defer end()
	x, y := tensor(t, tensorops.Float32, 4), tensor(t, tensorops.Float32, 4)
	waiting := members[0].AllReduce(x, tensorops.Sum)
	own := members[2].AllReduce(y, tensorops.Sum)
	cause := errors.New("out of memory")
	members[2].Leave(cause)
	if err := wait(t, own); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("who left is told %v", err)
	}
	for _, h := range []*collective.Handle{waiting, members[0].Barrier(), members[1].Barrier()} {
		err := wait(t, h)
		if !errors.Is(err, collective.ErrLeft) || !strings.Contains(err.Error(), "group tp of stage 0") ||
			!strings.Contains(err.Error(), "rank 2") || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("the others are told %v", err)
		}
	}
	if err := wait(t, members[2].Barrier()); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("after leaving: %v", err)
	}
}

func TestLocalLeave(t *testing.T) { testLeave(t, local) }

// TestBadArguments: what is wrong at one member is told there, and the others don't see it.
func TestBadArguments(t *testing.T) {
	members, end := local(t, "dp", 2)
	defer end()
	x := tensor(t, tensorops.Float32, 4, 3)
	ids := tensor(t, tensorops.Int32, 4)
	for _, c := range []struct {
		name string
		h    *collective.Handle
		is   error
	}{
		{"mean of ids", members[0].AllReduce(ids, tensorops.Mean), tensorops.ErrShape},
		{"no tensor", members[0].AllReduce(tensorops.Tensor{}, tensorops.Sum), tensorops.ErrShape},
		{"root", members[0].Broadcast(x, 2), tensorops.ErrShape},
		{"in place", members[0].AllToAll(x, x), collective.ErrOverlap},
		{"ring in place", members[0].RingForward(x, x), collective.ErrOverlap},
		{"another member's part", members[0].AllGather(x, x.RowRange(2, 4), 0), collective.ErrOverlap},
	} {
		if err := wait(t, c.h); !errors.Is(err, c.is) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
	a, b := members[0].Barrier(), members[1].Barrier()
	if err := errors.Join(wait(t, a), wait(t, b)); err != nil {
		t.Error(err)
	}
}

// TestLimitPending: who runs ahead without end is refused, not stored.
func TestLimitPending(t *testing.T) {
	members, end := local(t, "dp", 2)
	defer end()
	for range collective.LimitPending {
		members[0].Barrier()
	}
	if err := wait(t, members[0].Barrier()); !errors.Is(err, collective.ErrFull) {
		t.Errorf("error %v", err)
	}
}

// TestFollowingFromDone: a done function may start the next collective.
func TestFollowingFromDone(t *testing.T) {
	members, end := local(t, "dp", 2)
	defer end()
	ended := make(chan error, 2)
	for _, g := range members {
		x := tensor(t, tensorops.Float32, 100_000)
		left := 50
		var next func(error)
		next = func(err error) {
			if left--; left == 0 || err != nil {
				ended <- err
				return
			}
			l := tensorops.NewList(arena, tensorops.DType.Size)
			if left%2 == 0 {
				l.AllReduce(x, tensorops.Mean, g)
			} else {
				l.Barrier(g)
			}
			g.Start(&l.Ops()[0], next)
		}
		next(nil)
	}
	for range members {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestNaN: a NaN of any member is not lost.
func TestNaN(t *testing.T) {
	for rank := range 3 {
		for _, how := range []tensorops.Reduction{tensorops.Sum, tensorops.Max, tensorops.Min} {
			members, end := local(t, "dp", 3)
			var handles []*collective.Handle
			var tensors []tensorops.Tensor
			for i, g := range members {
				x := tensor(t, tensorops.BFloat16, 1)
				f := float32(i)
				if i == rank {
					f = float32(math.NaN())
				}
				tensorops.Elements[uint16](x)[0] = tensorops.ToBFloat16(f)
				tensors = append(tensors, x)
				handles = append(handles, g.AllReduce(x, how))
			}
			for i, h := range handles {
				if err := wait(t, h); err != nil {
					t.Fatal(err)
				}
				if f := tensorops.FromBFloat16(tensorops.Elements[uint16](tensors[i])[0]); f == f {
					t.Errorf("%v of a NaN of rank %d is %v", how, rank, f)
				}
			}
			end()
		}
	}
}

func BenchmarkLocal(b *testing.B) {
	for _, n := range []int{2, 4} {
		for _, d := range []tensorops.DType{tensorops.Float32, tensorops.BFloat16} {
			for _, size := range []int{64 << 10, 1 << 20, 64 << 20} {
				b.Run(fmt.Sprintf("members=%d/%v/bytes=%d", n, d, size), func(b *testing.B) {
					members := collective.Local("dp", n)
					tensors := make([]tensorops.Tensor, n)
					for i := range tensors {
						tensors[i] = tensor(b, d, size/d.Size())
						clear(tensorops.Bytes(tensors[i]))
					}
					b.SetBytes(int64(size * n))
					handles := make([]*collective.Handle, n)
					for b.Loop() {
						for i, g := range members {
							handles[i] = g.AllReduce(tensors[i], tensorops.Sum)
						}
						for _, h := range handles {
							if err := h.Wait(context.Background()); err != nil {
								b.Fatal(err)
							}
						}
					}
				})
			}
		}
	}
}
