package tensorops_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/tensorops"
)

func newArena() tensorops.Arena { return tensorops.NewHostMemory(0).NewArena("test") }

// counted makes a tensor whose elements are 0, 1, 2 and so on.
func counted(t interface{ Fatal(...any) }, dims ...int) tensorops.Tensor {
	x, err := tensorops.NewTensor(newArena(), tensorops.Float32, dims...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tensorops.Elements[float32](x) {
		tensorops.Elements[float32](x)[i] = float32(i)
	}
	return x
}

func TestTensorShape(t *testing.T) {
	for _, test := range []struct {
		dims            []int
		len, rows, cols int
		text            string
	}{
		{nil, 1, 1, 1, "float32[]"},
		{[]int{5}, 5, 1, 5, "float32[5]"},
		{[]int{3, 4}, 12, 3, 4, "float32[3 4]"},
		{[]int{2, 3, 4}, 24, 6, 4, "float32[2 3 4]"},
		{[]int{0, 4}, 0, 0, 4, "float32[0 4]"},
		{[]int{4, 0}, 0, 4, 0, "float32[4 0]"},
		{[]int{1, 2, 1, 2, 1, 2}, 8, 4, 2, "float32[1 2 1 2 1 2]"},
	} {
		x := counted(t, test.dims...)
		if x.Len() != test.len || x.Rows() != test.rows || x.Cols() != test.cols || x.Stride() != test.cols || x.String() != test.text {
			t.Errorf("%v: %v has %d elements, %d rows of %d, stride %d", test.dims, x, x.Len(), x.Rows(), x.Cols(), x.Stride())
		}
		if !slices.Equal(x.Shape(), test.dims) || x.Rank() != len(test.dims) || x.DType() != tensorops.Float32 {
			t.Errorf("%v: shape %v, rank %d, type %v", test.dims, x.Shape(), x.Rank(), x.DType())
		}
		if !x.Contiguous() || !x.Valid() || len(tensorops.Elements[float32](x)) != test.len {
			t.Errorf("%v: not a whole tensor", test.dims)
		}
	}
	x := counted(t, 2, 3, 4)
	if x.Dim(0) != 2 || x.Dim(2) != 4 || x.Dim(-1) != 4 || x.Dim(-3) != 2 {
		t.Error("dimensions count from the front, and negative ones from the end")
	}
	if !x.SameShape(counted(t, 2, 3, 4)) || x.SameShape(counted(t, 2, 12)) || x.SameShape(counted(t, 2, 3, 4, 1)) {
		t.Error("shapes are the same when all dimensions are")
	}
}

func TestImpossibleShapes(t *testing.T) {
	for _, test := range []struct {
		dims []int
		want error
	}{
		{[]int{-1}, tensorops.ErrShape},
		{[]int{3, -2}, tensorops.ErrShape},
		{[]int{tensorops.MaxDim + 1}, tensorops.ErrShape},
		{[]int{1, 1, 1, 1, 1, 1, 1}, tensorops.ErrShape},
		{[]int{tensorops.MaxDim, tensorops.MaxDim}, tensorops.ErrShape},
		{[]int{tensorops.MaxDim, tensorops.MaxDim, tensorops.MaxDim, tensorops.MaxDim, tensorops.MaxDim, tensorops.MaxDim}, tensorops.ErrShape},
		{[]int{tensorops.MaxDim, 1 << 24}, tensorops.ErrOutOfMemory},
	} {
		if x, err := tensorops.NewTensor(newArena(), tensorops.Float64, test.dims...); !errors.Is(err, test.want) || x.Valid() {
			t.Errorf("%v: %v, error %v; want %v", test.dims, x, err, test.want)
		}
	}
}

// TestViews takes views of views at random and compares with the numbers that
// were counted out.
func TestViews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, cols := rapid.IntRange(0, 5).Draw(t, "rows"), rapid.IntRange(0, 5).Draw(t, "cols")
		x := counted(t, rows, cols)
		want := make([][]float32, rows)
		for i := range want {
			for j := range cols {
				want[i] = append(want[i], float32(i*cols+j))
			}
		}
		for range rapid.IntRange(0, 4).Draw(t, "views") {
			switch rapid.SampledFrom([]string{"rows", "columns", "matrix", "view"}).Draw(t, "view") {
			case "rows":
				lo := rapid.IntRange(0, x.Rows()).Draw(t, "lo")
				hi := rapid.IntRange(lo, x.Rows()).Draw(t, "hi")
				x, want = x.RowRange(lo, hi), want[lo:hi]
			case "columns":
				lo := rapid.IntRange(0, x.Cols()).Draw(t, "lo")
				hi := rapid.IntRange(lo, x.Cols()).Draw(t, "hi")
				x = x.Columns(lo, hi)
				for i := range want {
					want[i] = want[i][lo:hi]
				}
			case "matrix":
				x = x.Matrix()
			case "view":
				if x.Contiguous() {
					x = x.View(x.Rows(), 1, x.Cols())
				}
			}
		}
		if x.Rows() != len(want) || x.Len() != x.Rows()*x.Cols() {
			t.Fatalf("%v has %d rows, want %d", x, x.Rows(), len(want))
		}
		elements := tensorops.Elements[float32](x)
		for i, row := range want {
			if x.Cols() != len(row) {
				t.Fatalf("%v has %d columns, want %d", x, x.Cols(), len(row))
			}
			for j, v := range row {
				if got := elements[i*x.Stride()+j]; got != v {
					t.Fatalf("row %d, column %d of %v is %g, want %g", i, j, x, got, v)
				}
			}
		}
		if x.Contiguous() && len(elements) != x.Len() {
			t.Fatalf("%v shows %d elements", x, len(elements))
		}
	})
}

func TestViewsOfNone(t *testing.T) {
	var none tensorops.Tensor
	for _, x := range []tensorops.Tensor{none, none.View(2, 3), none.Columns(1, 4), none.RowRange(1, 4), none.Matrix()} {
		if x.Valid() || x.String() != "none" {
			t.Errorf("%v is a tensor", x)
		}
	}
}

func TestImpossibleViews(t *testing.T) {
	x := counted(t, 3, 4)
	for _, test := range []struct {
		view func()
		want string
	}{
		{func() { x.View(3, 5) }, "tensorops: float32[3 4] cannot be viewed as [3 5]"},
		{func() { x.View(-3, -4) }, "tensorops: view of float32[3 4]: shapes do not fit: dimension 0 is -3: it must be from 0 to 2147483647"},
		{func() { x.Columns(1, 3).View(6) }, "tensorops: float32[3 2 stride 4] cannot be viewed as [6]"},
		{func() { x.Columns(1, 5) }, "tensorops: columns 1 to 5 of float32[3 4]"},
		{func() { x.Columns(-1, 2) }, "tensorops: columns -1 to 2 of float32[3 4]"},
		{func() { x.Columns(3, 2) }, "tensorops: columns 3 to 2 of float32[3 4]"},
		{func() { x.RowRange(0, 4) }, "tensorops: rows 0 to 4 of float32[3 4]"},
		{func() { x.RowRange(-1, 2) }, "tensorops: rows -1 to 2 of float32[3 4]"},
		{func() { tensorops.Elements[float64](counted(t, 64, 16)) },
			"tensorops: float32[64 16] at element 0 exceeds its buffer of 4096 bytes"},
	} {
		mustPanic(t, test.want, test.view)
	}
}

// mustPanic calls f, which must panic with a message.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("panic %q, want %q", got, want)
		}
	}()
	f()
}

func TestHostBytes(t *testing.T) {
	numbers := []float32{1, 2, 3}
	b := tensorops.HostBytes(numbers)
	if len(b) != 12 {
		t.Fatalf("%d bytes for three float32", len(b))
	}
	tensorops.HostNumbers[float32](b)[1] = 7
	if numbers[1] != 7 {
		t.Error("the view is not of the same memory")
	}
	if tensorops.HostBytes([]int32(nil)) != nil || tensorops.HostNumbers[float64](nil) != nil {
		t.Error("nothing is not nothing")
	}
}

// TestRuns: the bytes of a contiguous tensor are one run, those of a view of some columns are one a row.
func TestRuns(t *testing.T) {
	a := tensorops.NewHostMemory(0).NewArena("test")
	defer a.Close()
	m, err := tensorops.NewTensor(a, tensorops.Int32, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tensorops.Elements[int32](m) {
		tensorops.Elements[int32](m)[i] = int32(i)
	}
	for name, c := range map[string]struct {
		of   tensorops.Tensor
		want [][]int32
	}{
		"none":       {tensorops.Tensor{}, nil},
		"contiguous": {m, [][]int32{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}},
		"rows":       {m.RowRange(1, 3), [][]int32{{4, 5, 6, 7, 8, 9, 10, 11}}},
		"columns":    {m.Columns(2, 4), [][]int32{{2, 3}, {6, 7}, {10, 11}}},
		"one row":    {m.RowRange(2, 3).Columns(1, 3), [][]int32{{9, 10}}},
		"no columns": {m.Columns(4, 4), [][]int32{{}, {}, {}}},
	} {
		var got [][]int32
		for _, run := range tensorops.Runs(c.of) {
			got = append(got, tensorops.HostNumbers[int32](run))
		}
		if !slices.EqualFunc(got, c.want, slices.Equal[[]int32]) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
