package optest

import (
	"math"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

func moveCases() []Case {
	return []Case{
		{"fill/types", tensorops.KindFill, func(b *builder) {
			for _, n := range []int{0, 1, 7, 100_003} {
				f, d, i, h := b.garbage(n), b.garbage64(n), b.tokens(5, n), b.half(n)
				b.Fill(f, 0.1)
				b.Fill(d, 0.1)
				b.Fill(i, -1)
				b.Fill(h, 0.1)
				b.check(f, "float32 of %d", n)
				b.check(h, "bfloat16 of %d", n)
				b.check(d, "float64 of %d", n)
				b.check(i, "int32 of %d", n)
			}
		}},
		{"fill/values", tensorops.KindFill, func(b *builder) {
			for _, v := range []float64{0, -2.5, math.Inf(1), math.NaN()} {
				t := b.normal(33)
				b.Fill(t, v)
				b.check(t, "%g", v)
			}
		}},
		{"fill/rows", tensorops.KindFill, func(b *builder) {
			t := b.normal(9, 5)
			b.Fill(t.RowRange(2, 7), 0)
			b.check(t, "five of nine rows")
		}},
		{"copy/types", tensorops.KindCopy, func(b *builder) {
			for _, s := range shapes {
				x, ids := b.normal(s[0], s[1]), b.tokens(1000, s[0], s[1])
				to, sums, other := b.garbage(s[0], s[1]), b.garbage64(s[0], s[1]), b.garbage64(s[0], s[1])
				b.Fill(sums, 0.1)
				copied := b.tokens(7, s[0], s[1])
				b.Copy(to, x)
				b.Copy(other, sums)
				b.Copy(copied, ids)
				b.check(to, "float32 of %v", s)
				b.check(other, "float64 of %v", s)
				b.check(copied, "int32 of %v", s)
			}
		}},
		{"copy/columns", tensorops.KindCopy, func(b *builder) {
			for _, s := range shapes {
				_, from := b.framed(s[0], s[1])
				whole, to := b.framed(s[0], s[1])
				b.Copy(to, from)
				b.check(whole, "columns to columns of %v", s)
				t := b.garbage(s[0], s[1])
				b.Copy(t, from)
				b.check(t, "columns to a matrix of %v", s)
			}
			ids := b.tokens(1000, 20, 9)
			b.Copy(ids.Columns(5, 9), ids.Columns(0, 4))
			b.check(ids, "int32 columns to columns")
		}},
		{"copy/widen and round", tensorops.KindCopy, func(b *builder) {
			for _, s := range shapes {
				x, h, again := b.normal(s[0], s[1]), b.half(s[0], s[1]), b.garbage(s[0], s[1])
				b.Copy(h, x)
				b.Copy(again, h)
				b.check(h, "rounded, of %v", s)
				b.check(again, "and widened, of %v", s)
			}
			_, from := b.framed(37, 515)
			h := b.half(37, 520)
			b.Fill(h, 3)
			b.Copy(h.Columns(2, 517), from)
			b.check(h, "columns to columns")
			special := b.floats([]float32{0, float32(math.Inf(1)), -3.4e38, float32(math.NaN()), 1 + 1.0/256, 1 + 3.0/256, 1e-30}, 7)
			h = b.half(7)
			b.Copy(h, special)
			b.check(h, "ties to even, infinities and what is not a number")
		}},
		{"peer_copy/own", tensorops.KindPeerCopy, func(b *builder) { // of the device's own memory, in its order
			for _, s := range shapes {
				x, ids, to, sums, other := b.normal(s[0], s[1]), b.tokens(1000, s[0], s[1]), b.garbage(s[0], s[1]), b.garbage64(s[0], s[1]),
					b.garbage64(s[0], s[1])
				b.Fill(sums, 0.1)
				copied := b.tokens(7, s[0], s[1])
				b.PeerCopy(to, x)
				b.PeerCopy(other, sums)
				b.PeerCopy(copied, ids)
				b.Fill(x, 0)
				b.check(to, "float32 of %v", s)
				b.check(other, "float64 of %v", s)
				b.check(copied, "int32 of %v", s)
			}
			h, half := b.half(37, 515), b.half(37, 515)
			b.Copy(h, b.normal(37, 515))
			b.PeerCopy(half, h)
			b.check(half, "bfloat16")
			t := b.normal(20, 7)
			b.PeerCopy(t.RowRange(0, 5), t.RowRange(5, 10))
			b.check(t, "rows of one tensor")
		}},
		{"upload/again", tensorops.KindUpload, func(b *builder) {
			t := b.normal(20, 7)
			b.Upload(t.RowRange(5, 15), tensorops.HostBytes(b.numbers(70, 0, 1)))
			b.check(t, "ten of twenty rows")
		}},
		{"fetch/types", tensorops.KindFetch, func(b *builder) {
			sums := b.garbage64(5)
			b.Fill(sums, math.Pi)
			b.check(b.normal(100_003), "float32")
			b.check(sums, "float64")
			b.check(b.tokens(1<<31-1, 1001), "int32")
			b.types = []tensorops.DType{tensorops.BFloat16}
			b.check(b.normal(100_003), "bfloat16")
			b.check(b.normal(20, 7).RowRange(5, 15), "ten of twenty rows in bfloat16")
			b.types = nil
			b.check(b.normal(20, 7).RowRange(5, 15), "ten of twenty rows")
			b.check(b.spread(0, 1e38, 100), "float32 with infinities")
			b.check(b.spread(0, 1e-40, 100), "float32 below the normal numbers")
		}},
		{"collective/alone", tensorops.KindCollective, func(b *builder) {
			t := b.normal(37, 515)
			b.AllReduce(t, tensorops.Sum, tensorops.Solo{})
			b.check(t, "t")
		}},
		{"await/alone", tensorops.KindAwait, func(b *builder) {
			x, y := b.normal(37, 5), b.garbage(37, 5)
			b.Begin(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: x, Src: x, Group: tensorops.Solo{}})
			b.Copy(y, b.normal(37, 5))
			b.Await()
			b.Add(y, y, x)
			b.Await() // for nothing
			b.check(y, "x and another")
		}},
		{"await/one", tensorops.KindAwait, func(b *builder) {
			x, y, z := b.normal(37, 5), b.normal(37, 5), b.garbage(37, 5)
			numbers := [2]int{}
			for i, to := range []tensorops.Tensor{x, y} {
				numbers[i] = b.Begin(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: to, Src: to, Group: tensorops.Solo{}})
			}
			b.AwaitOne(numbers[1])
			b.Copy(z, y)
			b.AwaitOne(numbers[0])
			b.Add(z, z, x)
			b.check(z, "the sum of both")
		}},
		{"spin/briefly", tensorops.KindSpin, func(b *builder) {
			b.Spin(0)
			b.Spin(time.Microsecond)
			b.check(b.normal(5), "what follows")
		}},
		{"call/in its place", tensorops.KindCall, func(b *builder) {
			x, ids := b.normal(37, 5), b.tokens(5, 37)
			y, sums := b.garbage(37), b.garbage64(1)
			b.Fill(x.RowRange(3, 4), 2)
			b.Call(tensorops.Call{Name: "pick", Reads: []tensorops.Tensor{x, ids}, Writes: []tensorops.Tensor{y, sums}, Func: pick})
			b.Add(y, y, y)
			b.check(y, "picked, twice")
			b.check(sums, "sum")
		}},
		{"call/bfloat16", tensorops.KindCall, func(b *builder) {
			x, y := b.half(37), b.half(37)
			b.Copy(x, b.normal(37))
			b.Fill(y, 1)
			b.Call(tensorops.Call{Name: "third", Reads: []tensorops.Tensor{x}, Writes: []tensorops.Tensor{y},
				Func: func(reads, writes []tensorops.Array) error {
					for i, v := range reads[0].Float {
						writes[0].Float[i] = writes[0].Float[i] + v/3
					}
					return nil
				}})
			b.check(y, "1 and a third")
		}},
		{"call/without operands", tensorops.KindCall, func(b *builder) {
			t := b.garbage(3)
			b.Call(tensorops.Call{Name: "nothing", Func: func(_, _ []tensorops.Array) error { return nil }})
			b.Call(tensorops.Call{Name: "three", Writes: []tensorops.Tensor{t}, Func: func(_, writes []tensorops.Array) error {
				copy(writes[0].Float, []float32{1, 2, 3})
				return nil
			}})
			b.check(t, "numbers")
		}},
	}
}

// pick takes of each row the element that an id names, and sums them.
func pick(reads, writes []tensorops.Array) error {
	x, cols := reads[0].Float, reads[0].Shape[1]
	writes[1].Double[0] = 0
	for i, id := range reads[1].Int {
		writes[0].Float[i] = x[i*cols+int(id)]
		writes[1].Double[0] += float64(x[i*cols+int(id)])
	}
	return nil
}
