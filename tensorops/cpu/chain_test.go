package cpu

import (
	"bytes"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestChain: operations on elements that are carried out together have the bits of one after the other. Those that read other elements
// of what one before them writes are not.
func TestChain(t *testing.T) {
	none := tensorops.Tensor{}
	type operands struct {
		a, b, c tensorops.Tensor
		low     tensorops.Tensor // bfloat16
		memory  tensorops.Tensor // twice as many elements
	}
	for _, test := range []struct {
		name   string
		chain  int // operations of it, of those that are recorded
		record func(l *tensorops.List, o operands, apart func())
	}{
		{"momentum", 4, func(l *tensorops.List, o operands, apart func()) {
			l.AddScaled(o.a, o.a, none, 0.9)
			apart()
			l.AddScaled(o.a, o.b, o.a, 0.1)
			apart()
			l.AddScaled(o.c, o.a, none, 0.9)
			apart()
			l.AddScaled(o.c, o.b, o.c, 0.1)
		}},
		{"update", 4, func(l *tensorops.List, o operands, apart func()) {
			l.AddScaled(o.a, o.a, none, 0.99)
			apart()
			l.AddScaled(o.a, o.b, o.a, -0.3)
			apart()
			l.Copy(o.low, o.a)
			apart()
			l.Fill(o.b, 0)
		}},
		{"onto bfloat16", 2, func(l *tensorops.List, o operands, apart func()) {
			l.AddScaled(o.low, o.low, o.a, 0.5)
			apart()
			l.AddScaled(o.b, o.low, o.low, 3)
		}},
		{"another length", 1, func(l *tensorops.List, o operands, apart func()) {
			l.AddScaled(o.a, o.a, none, 2)
			apart()
			l.AddScaled(o.memory, o.memory, none, 3)
		}},
		{"other elements", 1, func(l *tensorops.List, o operands, apart func()) {
			n := o.a.Len()
			l.AddScaled(o.memory.Part(n/2, n), o.a, none, 2)
			apart()
			l.AddScaled(o.b, o.memory.Part(0, n), none, 3)
		}},
		{"other elements later", 2, func(l *tensorops.List, o operands, apart func()) {
			n := o.a.Len()
			l.AddScaled(o.memory.Part(0, n), o.a, none, 2)
			apart()
			l.AddScaled(o.c, o.a, none, 2)
			apart()
			l.Copy(o.memory.Part(n/2, n), o.c)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, n := range []int{2, 300, 200_002} {
				run := func(separate bool) (all []byte) {
					dev, err := New(Options{Threads: 2})
					if err != nil {
						t.Fatal(err)
					}
					defer dev.Close()
					s := dev.NewStream("chain")
					defer s.Close()
					l := s.NewList()
					var made []tensorops.Tensor
					normal := func(n int) tensorops.Tensor {
						x := l.Alloc(tensorops.Float32, n)
						values := make([]float32, n)
						rng.Normal(values, rng.NewKey(9, uint64(len(made))), 0, 0, 1)
						l.Upload(x, tensorops.HostBytes(values))
						made = append(made, x)
						return x
					}
					o := operands{normal(n), normal(n), normal(n), l.Alloc(tensorops.BFloat16, n), normal(2 * n)}
					made = append(made, o.low)
					l.Copy(o.low, o.c)
					between := normal(1)
					before := len(l.Ops())
					test.record(l, o, func() {
						if separate {
							l.Copy(between, between)
						}
					})
					if got := len(chainOf(l.Ops()[before:])); !separate && got != test.chain {
						t.Errorf("%d elements: the chain has %d operations, want %d", n, got, test.chain)
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
					t.Errorf("%d elements: other bits than one operation after the other", n)
				}
			}
		})
	}
}
