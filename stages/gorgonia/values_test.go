package gorgonia

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// Central differences only say that a gradient fits a result. These are the results
// themselves, written down once more.

// coordinates are those of an element in a shape, offset is the way back.
func coordinates(shape []int, i int) []int {
	c := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		c[d], i = i%shape[d], i/shape[d]
	}
	return c
}

func offset(shape, c []int) int {
	i := 0
	for d, n := range shape {
		i = i*n + c[d]
	}
	return i
}

// valueFunc computes an operation's result in float64.
type valueFunc func(in []tensorops.Array) []float64

func each(f func(x float64) float64) valueFunc {
	return func(in []tensorops.Array) (out []float64) {
		for _, v := range in[0].Double {
			out = append(out, f(v))
		}
		return out
	}
}

// broadcastValue applies f to elements of two shapes of one rank, in which sizes of 1 repeat.
func broadcastValue(f func(a, b float64) float64) valueFunc {
	return func(in []tensorops.Array) []float64 {
		a, b := in[0], in[1]
		shape := make([]int, len(a.Shape))
		for d := range shape {
			shape[d] = max(a.Shape[d], b.Shape[d])
		}
		at := func(x tensorops.Array, c []int) float64 {
			own := make([]int, len(c))
			for d := range c {
				own[d] = min(c[d], x.Shape[d]-1)
			}
			return x.Double[offset(x.Shape, own)]
		}
		out := make([]float64, elements(shape))
		for i := range out {
			c := coordinates(shape, i)
			out[i] = f(at(a, c), at(b, c))
		}
		return out
	}
}

// reduceValue reduces along axes.
func reduceValue(axes []int, first float64, f func(sum, x float64) float64, end func(sum float64, n int) float64) valueFunc {
	return func(in []tensorops.Array) []float64 {
		x := in[0]
		small, n := slices.Clone(x.Shape), 1
		for _, a := range axes {
			n *= small[a]
			small[a] = 1
		}
		out := slices.Repeat([]float64{first}, elements(small))
		for i, v := range x.Double {
			c := coordinates(x.Shape, i)
			for _, a := range axes {
				c[a] = 0
			}
			o := offset(small, c)
			out[o] = f(out[o], v)
		}
		for i := range out {
			out[i] = end(out[i], n)
		}
		return out
	}
}

func sumValue(axes ...int) valueFunc {
	return reduceValue(axes, 0, func(s, x float64) float64 { return s + x }, func(s float64, _ int) float64 { return s })
}

func meanValue(axes ...int) valueFunc {
	return reduceValue(axes, 0, func(s, x float64) float64 { return s + x }, func(s float64, n int) float64 { return s / float64(n) })
}

func maxValue(axes ...int) valueFunc {
	return reduceValue(axes, math.Inf(-1), math.Max, func(s float64, _ int) float64 { return s })
}

func softmaxValue(axis int, logarithm bool) valueFunc {
	return func(in []tensorops.Array) []float64 {
		x := in[0]
		exp := tensorops.Array{Shape: x.Shape, Double: each(math.Exp)(in)}
		small := slices.Clone(x.Shape)
		small[axis] = 1
		sums := tensorops.Array{Shape: small, Double: sumValue(axis)([]tensorops.Array{exp})}
		return broadcastValue(func(a, b float64) float64 {
			if logarithm {
				return math.Log(a / b)
			}
			return a / b
		})([]tensorops.Array{exp, sums})
	}
}

// pickValue takes elements: from says which of an input an element of the result is.
func pickValue(shape []int, from func(c []int) (input int, at []int)) valueFunc {
	return func(in []tensorops.Array) []float64 {
		out := make([]float64, elements(shape))
		for i := range out {
			k, c := from(coordinates(shape, i))
			out[i] = in[k].Double[offset(in[k].Shape, c)]
		}
		return out
	}
}

// transposeValue has p[d] as the axis of the input that becomes axis d.
func transposeValue(shape, p []int) valueFunc {
	to := make([]int, len(p))
	for d, a := range p {
		to[d] = shape[a]
	}
	return pickValue(to, func(c []int) (int, []int) {
		at := make([]int, len(c))
		for d, a := range p {
			at[a] = c[d]
		}
		return 0, at
	})
}

func concatValue(shape []int, axis int) valueFunc {
	to := slices.Clone(shape)
	to[axis] *= 2
	return pickValue(to, func(c []int) (int, []int) {
		at := slices.Clone(c)
		k := at[axis] / shape[axis]
		at[axis] %= shape[axis]
		return k, at
	})
}

func sliceValue(shape []int, axis int, s tensor.Slice) valueFunc {
	to := slices.Clone(shape)
	to[axis] = s.End() - s.Start()
	return pickValue(to, func(c []int) (int, []int) {
		at := slices.Clone(c)
		at[axis] += s.Start()
		return 0, at
	})
}

func indicesValue(shape []int, axis, n int) valueFunc {
	return func(in []tensorops.Array) []float64 {
		to := slices.Clone(shape)
		to[axis] = n
		return pickValue(to, func(c []int) (int, []int) {
			at := slices.Clone(c)
			at[axis] = int(in[1].Int[c[axis]])
			return 0, at
		})(in)
	}
}

func mulValue(in []tensorops.Array) []float64 {
	a, b := in[0], in[1]
	batch, m, k, n := 1, a.Shape[len(a.Shape)-2], a.Shape[len(a.Shape)-1], b.Shape[len(b.Shape)-1]
	for _, d := range a.Shape[:len(a.Shape)-2] {
		batch *= d
	}
	out := make([]float64, batch*m*n)
	for i := range out {
		for l := range k {
			out[i] += a.Double[i/n*k+l] * b.Double[i/n/m*k*n+l*n+i%n]
		}
	}
	return out
}

// convValue is a convolution with a kernel, padding, stride and dilation in both directions.
func convValue(pad, stride, dilation [2]int) valueFunc {
	return func(in []tensorops.Array) (out []float64) {
		x, w := in[0], in[1]
		size := func(d int) int {
			return (x.Shape[2+d]+2*pad[d]-dilation[d]*(w.Shape[2+d]-1)-1)/stride[d] + 1
		}
		for i := range x.Shape[0] * w.Shape[0] * size(0) * size(1) {
			c := coordinates([]int{x.Shape[0], w.Shape[0], size(0), size(1)}, i)
			sum := 0.0
			for j, v := range w.Double[c[1]*elements(w.Shape[1:]):][:elements(w.Shape[1:])] {
				k := coordinates(w.Shape[1:], j)
				at := []int{c[0], k[0], c[2]*stride[0] + k[1]*dilation[0] - pad[0], c[3]*stride[1] + k[2]*dilation[1] - pad[1]}
				if at[2] >= 0 && at[2] < x.Shape[2] && at[3] >= 0 && at[3] < x.Shape[3] {
					sum += v * x.Double[offset(x.Shape, at)]
				}
			}
			out = append(out, sum)
		}
		return out
	}
}

// poolValue is the largest number under a square kernel.
func poolValue(kernel, pad, stride int) valueFunc {
	return func(in []tensorops.Array) (out []float64) {
		x := in[0]
		to := []int{x.Shape[0], x.Shape[1], (x.Shape[2]+2*pad-kernel)/stride + 1, (x.Shape[3]+2*pad-kernel)/stride + 1}
		for i := range elements(to) {
			c, best := coordinates(to, i), math.Inf(-1)
			for j := range kernel * kernel {
				at := []int{c[0], c[1], c[2]*stride + j/kernel - pad, c[3]*stride + j%kernel - pad}
				if at[2] >= 0 && at[2] < x.Shape[2] && at[3] >= 0 && at[3] < x.Shape[3] {
					best = max(best, x.Double[offset(x.Shape, at)])
				}
			}
			out = append(out, best)
		}
		return out
	}
}

func relu(x float64) float64 { return math.Max(x, 0) }

// values are results of opCases, by name.
var values = map[string]valueFunc{
	"Abs": each(math.Abs), "Sin": each(math.Sin), "Cos": each(math.Cos), "Exp": each(math.Exp), "Log": each(math.Log),
	"Neg": each(func(x float64) float64 { return -x }), "Square": each(func(x float64) float64 { return x * x }), "Sqrt": each(math.Sqrt),
	"Inverse": each(func(x float64) float64 { return 1 / x }), "Cube": each(func(x float64) float64 { return x * x * x }),
	"Tanh":    each(math.Tanh),
	"Sigmoid": each(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }), "Log1p": each(math.Log1p), "Expm1": each(math.Expm1),
	"Softplus": each(func(x float64) float64 { return math.Log1p(math.Exp(x)) }), "Rectify": each(relu),
	"LeakyRelu":    each(func(x float64) float64 { return relu(x) - 0.1*relu(-x) }),
	"Mish":         each(func(x float64) float64 { return x * math.Tanh(math.Log1p(math.Exp(x))) }),
	"Add":          broadcastValue(func(a, b float64) float64 { return a + b }),
	"Sub":          broadcastValue(func(a, b float64) float64 { return a - b }),
	"HadamardProd": broadcastValue(func(a, b float64) float64 { return a * b }),
	"HadamardDiv":  broadcastValue(func(a, b float64) float64 { return a / b }),
	"Pow":          broadcastValue(math.Pow), "MinBetween": broadcastValue(math.Min), "MaxBetween": broadcastValue(math.Max),
	"BroadcastHadamardDiv": broadcastValue(func(a, b float64) float64 { return a / b }), "BroadcastPow": broadcastValue(math.Pow),
	"Mul": mulValue, "BatchedMatMul": mulValue, "BatchedMatMul 4": mulValue, "Mul by a column": mulValue, "Mul of a row": mulValue,
	"Mul of a column by a row": mulValue, "Mul of a row by a column": mulValue,
	"Reshape": each(func(x float64) float64 { return x }), "Ravel": each(func(x float64) float64 { return x }),
	"Conv2d":                 convValue([2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}),
	"Conv2d with a stride":   convValue([2]int{0, 0}, [2]int{2, 2}, [2]int{1, 1}),
	"Conv2d, uneven":         convValue([2]int{1, 0}, [2]int{2, 1}, [2]int{1, 1}),
	"Conv2d with a dilation": convValue([2]int{0, 0}, [2]int{1, 1}, [2]int{2, 2}),
	"MaxPool2D":              poolValue(2, 0, 2), "MaxPool2D, overlapping": poolValue(3, 0, 1), "MaxPool2D, padded": poolValue(2, 1, 2),
}

// checkValue compares results with those written down.
func checkValue(want valueFunc, in []tensorops.Array, out tensorops.Array) error {
	w := want(in)
	if len(w) != out.Len() {
		return fmt.Errorf("the result has %d numbers, want %d", out.Len(), len(w))
	}
	for i, v := range w {
		if got := out.Double[i]; !(math.Abs(got-v) <= 1e-9*(1+math.Abs(v))) {
			return fmt.Errorf("the result's element %d is %g, want %g", i, got, v)
		}
	}
	return nil
}

// TestValuesNamed: every value belongs to an operation of the table.
func TestValuesNamed(t *testing.T) {
	for name := range values {
		if !slices.ContainsFunc(opCases, func(c opCase) bool { return c.name == name }) {
			t.Errorf("there is no operation %q", name)
		}
	}
}
