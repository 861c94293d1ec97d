//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// rowsTest is a list that works on rows, with what it makes.
type rowsTest struct {
	list *tensorops.List
	made []tensorops.Tensor
	seed uint64
}

// normal makes a tensor of random numbers.
func (r *rowsTest) normal(dtype tensorops.DType, dims ...int) tensorops.Tensor {
	r.seed++
	wide := r.list.Alloc(tensorops.Float32, dims...)
	values := make([]float32, wide.Len())
	rng.Normal(values, rng.NewKey(9, r.seed), 0, 0, 1)
	r.list.Upload(wide, tensorops.HostBytes(values))
	t := r.list.Alloc(dtype, dims...)
	r.list.Copy(t, wide)
	r.list.Free(wide)
	r.made = append(r.made, t)
	return t
}

// TestJoinsNeighbours: a residual and its norm are one launch, and so are a norm's two gradients, but for the
// last sums, and an activation's gradient and the activation; and the bits are those of one after the other.
func TestJoinsNeighbours(t *testing.T) {
	l, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("neighbours")
	type operands struct{ x, skip, y, stats, gamma, beta, dy, dx, dgamma, dbeta, other tensorops.Tensor }
	forward := func(p float64, rms bool) func(list *tensorops.List, o operands, apart func()) {
		return func(list *tensorops.List, o operands, apart func()) {
			list.Dropout(o.x, o.x, o.skip, tensorops.Mask{Key: rng.NewKey(3, 3), Step: 2, First: 5, P: p})
			apart()
			if rms {
				list.RMSNorm(o.y, o.x, o.gamma, o.stats.View(2, o.x.Rows()).RowRange(0, 1), tensorops.RMSNormOpts{Eps: 1e-5})
			} else {
				list.LayerNorm(o.y, o.x, o.gamma, o.beta, o.stats, 1e-5)
			}
		}
	}
	backward := func(list *tensorops.List, o operands, apart func()) {
		list.LayerNormWeightGrad(o.dgamma, o.dbeta, o.dy, o.x, o.stats)
		apart()
		list.LayerNormGrad(o.dx, o.dy, o.x, o.gamma, o.stats, o.skip)
	}
	gelu := func(list *tensorops.List, o operands, apart func()) {
		list.GELUGrad(o.dx, o.dy, o.x)
		apart()
		list.GELU(o.x, o.x)
	}
	swiGLU := func(list *tensorops.List, o operands, apart func()) {
		list.SwiGLUGrad(o.dx, o.dy, o.dy, o.x, o.skip)
		apart()
		list.SwiGLU(o.x, o.x, o.skip)
	}
	over := func(list *tensorops.List, o operands, apart func()) { // what the gradient is of
		list.GELUGrad(o.dx, o.dy, o.x)
		apart()
		list.GELU(o.dy, o.x)
	}
	for _, test := range []struct {
		what             string
		rows, cols       int
		dtype            tensorops.DType
		record           func(list *tensorops.List, o operands, apart func())
		joined, separate int64
	}{
		{"residual", 37, 768, tensorops.BFloat16, forward(0, false), 1, 3},
		{"residual of which something is dropped", 37, 768, tensorops.BFloat16, forward(0.2, false), 2, 3},
		{"residual, float32, uneven", 5, 131, tensorops.Float32, forward(0, true), 1, 3},
		{"residual, a block to a row", 3, 2048, tensorops.BFloat16, forward(0, true), 1, 3},
		{"residual, wider than what is kept", 2, 16640, tensorops.BFloat16, forward(0, false), 1, 3},
		{"gradients", 70, 768, tensorops.BFloat16, backward, 2, 4},
		{"gradients, float32, uneven", 70, 131, tensorops.Float32, backward, 2, 4},
		{"GELU", 37, 768, tensorops.BFloat16, gelu, 1, 3},
		{"GELU, float32, uneven", 3, 131, tensorops.Float32, gelu, 1, 3},
		{"GELU over what is read", 3, 131, tensorops.Float32, over, 2, 3},
		{"SwiGLU", 37, 768, tensorops.BFloat16, swiGLU, 1, 3},
		{"gradients, too wide", 5, 4104, tensorops.BFloat16, backward, 3, 4},
	} {
		t.Run(test.what, func(t *testing.T) {
			run := func(apart bool) (all []byte, launches int64) {
				r := rowsTest{list: s.NewList()}
				normal := func(dims ...int) tensorops.Tensor { return r.normal(test.dtype, dims...) }
				single := func(dims ...int) tensorops.Tensor { return r.normal(tensorops.Float32, dims...) }
				n, c := test.rows, test.cols
				o := operands{normal(n, c), normal(n, c), normal(n, c), single(n, 2), single(c), single(c), normal(n, c), normal(n, c), single(c),
					single(c), single(1)}
				if err := tensorops.Run(s, r.list); err != nil {
					t.Fatal(err)
				}
				before := l.Calls("cuLaunchKernel")
				list := s.NewList()
				test.record(list, o, func() {
					if apart {
						list.Fill(o.other, 0)
					}
				})
				if err := tensorops.Run(s, list); err != nil {
					t.Fatal(err)
				}
				launches = l.Calls("cuLaunchKernel") - before
				list = s.NewList()
				for _, x := range r.made[:10] {
					to := make([]byte, x.Len()*x.DType().Size())
					list.Fetch(to, x)
					defer func() { all = append(all, to...) }()
				}
				for _, x := range r.made {
					list.Free(x)
				}
				if err := tensorops.Run(s, list); err != nil {
					t.Fatal(err)
				}
				return all, launches
			}
			got, launches := run(false)
			want, more := run(true)
			if launches != test.joined || more != test.separate {
				t.Errorf("%d launches, and %d with another operation between them; want %d and %d", launches, more, test.joined, test.separate)
			}
			if !bytes.Equal(got, want) {
				t.Error("what is joined has other bits than one after the other")
			}
		})
	}
}
