package cpu

import (
	"bytes"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestFollowers: what follows a product at once gets the bits of one operation after the other, and what
// would read or overwrite the product's own operands doesn't follow.
func TestFollowers(t *testing.T) {
	type operands struct{ a, b, bias, c, x, y tensorops.Tensor }
	forward := func(l *tensorops.List, o operands, apart func()) {
		l.MatMul(o.c, o.a, o.b, tensorops.MatMulOpts{Bias: o.bias})
		apart()
		l.GELU(o.y, o.c)
	}
	backward := func(l *tensorops.List, o operands, apart func()) {
		l.MatMul(o.c, o.a, o.b, tensorops.MatMulOpts{Accumulate: true})
		apart()
		l.GELUGrad(o.c, o.c, o.x)
		apart()
		l.GELU(o.x, o.x)
	}
	over := func(l *tensorops.List, o operands, apart func()) {
		l.MatMul(o.c, o.a, o.b, tensorops.MatMulOpts{})
		apart()
		l.GELU(o.a, o.c)
	}
	shifted := func(l *tensorops.List, o operands, apart func()) { // a row further on in the same memory
		rows := o.c.Rows() - 1
		l.MatMul(o.c.RowRange(0, rows), o.a.RowRange(0, rows), o.b, tensorops.MatMulOpts{})
		apart()
		l.GELU(o.y.RowRange(0, rows), o.c.RowRange(1, rows+1))
	}
	for _, test := range []struct {
		name    string
		m, k, n int
		record  func(l *tensorops.List, o operands, apart func())
		follow  int
	}{
		{"forward", 300, 520, 600, forward, 1},
		{"forward, more columns than rows", 70, 300, 1100, forward, 1},
		{"forward, without packing", 3, 5, 7, forward, 1},
		{"forward, no depth", 3, 0, 7, forward, 1},
		{"forward, nothing", 0, 5, 7, forward, 1},
		{"backward", 300, 520, 600, backward, 2},
		{"backward, one row", 1, 520, 600, backward, 2},
		{"onto an operand", 300, 300, 300, over, 0},
		{"of other elements of C", 300, 300, 300, shifted, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := func(separate bool) (all []byte) {
				dev, err := New(Options{Threads: 2})
				if err != nil {
					t.Fatal(err)
				}
				defer dev.Close()
				s := dev.NewStream("followers")
				l := s.NewList()
				var made []tensorops.Tensor
				normal := func(dims ...int) tensorops.Tensor {
					x := l.Alloc(tensorops.Float32, dims...)
					values := make([]float32, x.Len())
					rng.Normal(values, rng.NewKey(9, uint64(len(made))), 0, 0, 1)
					l.Upload(x, tensorops.HostBytes(values))
					made = append(made, x)
					return x
				}
				m, k, n := test.m, test.k, test.n
				o := operands{normal(m, k), normal(k, n), normal(n), normal(m, n), normal(m, n), normal(m, n)}
				before := len(l.Ops())
				test.record(l, o, func() {
					if separate {
						l.Copy(o.bias, o.bias)
					}
				})
				if got := len(followers(l.Ops()[before:])); !separate && got != test.follow {
					t.Errorf("%d operations follow, want %d", got, test.follow)
				}
				if err := tensorops.Run(s, l); err != nil {
					t.Fatal(err)
				}
				for _, x := range made {
					all = append(all, tensorops.Bytes(x)...)
				}
				return all
			}
			if !bytes.Equal(run(false), run(true)) {
				t.Error("other bits than one operation after the other")
			}
		})
	}
}

// TestFollowersOfBFloat16 has none.
func TestFollowersOfBFloat16(t *testing.T) {
	dev, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	l := dev.NewStream("followers").NewList()
	half := func() tensorops.Tensor { return l.Alloc(tensorops.BFloat16, 8, 8) }
	c := half()
	l.MatMul(c, half(), half(), tensorops.MatMulOpts{BF16: true})
	l.GELU(half(), c)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if got := len(followers(l.Ops())); got != 0 {
		t.Errorf("%d operations follow, want none", got)
	}
}
