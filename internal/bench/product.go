package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// ErrInput: a shape, a form or a model is invalid.
var ErrInput = errors.New("invalid input")

// Shape is the size of a matrix product: C of M×N, summed over K.
type Shape struct{ M, N, K int }

func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K) }

// FLOPs counts a multiply-add as two.
func (s Shape) FLOPs() float64 { return 2 * float64(s.M) * float64(s.N) * float64(s.K) }

// LimitElements bounds each matrix, to one GiB.
const LimitElements = 1 << 28

// ParseShape reads a shape such as 256x768x768.
func ParseShape(text string) (Shape, error) {
	parts := strings.Split(text, "x")
	var n [3]int
	ok := len(parts) == len(n)
	for i := 0; ok && i < len(n); i++ {
		var err error
		n[i], err = strconv.Atoi(parts[i])
		ok = err == nil && n[i] > 0 && n[i] <= LimitElements
	}
	if !ok {
		return Shape{}, fmt.Errorf("%w: shape %q; use M, N and K, such as 256x768x768", ErrInput, text)
	}
	s := Shape{n[0], n[1], n[2]}
	for _, e := range []int64{int64(s.M) * int64(s.K), int64(s.K) * int64(s.N), int64(s.M) * int64(s.N)} {
		if e > LimitElements {
			return Shape{}, fmt.Errorf("%w: shape %q has a matrix of %d elements, but the limit is %d", ErrInput, text, e, LimitElements)
		}
	}
	return s, nil
}

// DefaultShapes lists the products of GPT-2's layers and head, and squares.
func DefaultShapes() []Shape {
	return []Shape{{64, 64, 64}, {256, 768, 768}, {256, 3072, 768}, {256, 768, 3072}, {1024, 1024, 1024}, {2048, 2048, 2048},
		{256, 50257, 768}}
}

// Forms lists the forms of a product, which say whether A and B are stored transposed (t) or not (n).
// Training needs all three: y = x·W, dx = dy·Wᵀ and dW = xᵀ·dy.
func Forms() []string { return []string{"nn", "nt", "tn"} }

// CheckForm returns ErrInput for a form that is not one of Forms.
func CheckForm(form string) error {
	if !slices.Contains(Forms(), form) {
		return fmt.Errorf("%w: unknown form %q; use one of %s", ErrInput, form, strings.Join(Forms(), ", "))
	}
	return nil
}

// DTypes lists the dtypes of matrices.
func DTypes() []string { return []string{float32Name, bfloat16} }

const (
	float32Name = "float32"
	bfloat16    = "bfloat16"
)

// Products measures matrix products on a device.
type Products struct {
	harness *harness
	dtype   string
}

// NewProducts opens a CPU device for products in one of DTypes.
func NewProducts(o cpu.Options, dtype string) (*Products, error) {
	if !slices.Contains(DTypes(), dtype) {
		return nil, fmt.Errorf("%w: unknown type %q; use one of %s", ErrInput, dtype, strings.Join(DTypes(), ", "))
	}
	dev, err := cpu.New(o)
	if err != nil {
		return nil, err
	}
	b, err := newHarness(dev)
	if err != nil {
		return nil, err
	}
	return &Products{b, dtype}, nil
}

// Close closes the device.
func (p *Products) Close() { p.harness.close() }

// ProductResult is the speed of one product.
type ProductResult struct {
	Shape   string  `json:"shape"`
	Form    string  `json:"form"`
	Threads int     `json:"threads"`
	Kernels string  `json:"kernels"`
	DType   string  `json:"dtype"`
	MS      Summary `json:"ms"`
	GFLOPS  Summary `json:"gflops"`
}

// Measure times one product for some seconds.
func (p *Products) Measure(ctx context.Context, s Shape, form string, seconds float64) (r ProductResult, err error) {
	if err := CheckForm(form); err != nil {
		return r, err
	}
	o := tensorops.MatMulOpts{TransA: form[0] == 't', TransB: form[1] == 't', BF16: p.dtype == bfloat16}
	a, err := p.operand(s.M, s.K, o.TransA)
	if err != nil {
		return r, err
	}
	defer a.Release()
	b, err := p.operand(s.K, s.N, o.TransB)
	if err != nil {
		return r, err
	}
	defer b.Release()
	c, err := p.harness.numbers(p.stored(), s.M, s.N)
	if err != nil {
		return r, err
	}
	defer c.Release()
	ms, err := sample(ctx, seconds, p.harness.least, p.harness.timed(func(l *tensorops.List) { l.MatMul(c, a, b, o) }))
	if err != nil {
		return r, err
	}
	return ProductResult{Shape: s.String(), Form: form, Threads: p.harness.dev.Threads(), Kernels: p.harness.dev.Path(), DType: p.dtype,
		MS: ms[0], GFLOPS: ms[0].per(s.FLOPs() / 1e6)}, nil
}

// operand returns a matrix that is rows × cols in the product.
func (p *Products) operand(rows, cols int, transposed bool) (tensorops.Tensor, error) {
	if transposed {
		rows, cols = cols, rows
	}
	return p.harness.numbers(p.stored(), rows, cols)
}

// stored returns the dtype of the matrices.
func (p *Products) stored() tensorops.DType {
	if p.dtype == bfloat16 {
		return tensorops.BFloat16
	}
	return tensorops.Float32
}
