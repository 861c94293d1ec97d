package gorgonia

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// opCase is an operation on inputs of given shapes, drawn between lo and hi.
type opCase struct {
	name   string
	shapes [][]int
	lo, hi float64
	build  func(in []*G.Node) (*G.Node, error)
	// wrong is how the operation fails if it isn't refused, which it must be.
	wrong string
	// prints: it is right, but writes to the standard log, and is refused.
	prints bool
	// fails is how it fails by itself.
	fails string
	// index: the last input is indices below this number.
	index int
	// value is the result; nil: that of values, if it is there.
	value valueFunc
}

func unary(f func(*G.Node) (*G.Node, error)) func([]*G.Node) (*G.Node, error) {
	return func(in []*G.Node) (*G.Node, error) { return f(in[0]) }
}

func binary(f func(a, b *G.Node) (*G.Node, error)) func([]*G.Node) (*G.Node, error) {
	return func(in []*G.Node) (*G.Node, error) { return f(in[0], in[1]) }
}

func broadcast(f func(a, b *G.Node, l, r []byte) (*G.Node, error), l, r []byte) func([]*G.Node) (*G.Node, error) {
	return func(in []*G.Node) (*G.Node, error) { return f(in[0], in[1], l, r) }
}

var (
	one   = [][]int{{3, 4}}
	two   = [][]int{{3, 4}, {3, 4}}
	cube  = [][]int{{2, 3, 4}}
	image = [][]int{{2, 3, 6, 6}}
)

func constant(in []*G.Node, v float64) *G.Node {
	if in[0].Dtype() == tensor.Float64 {
		return G.NewConstant(v)
	}
	return G.NewConstant(float32(v))
}

var opCases = []opCase{
	{name: "Abs", shapes: one, lo: -2, hi: 2, build: unary(G.Abs)},
	{name: "Sin", shapes: one, lo: -2, hi: 2, build: unary(G.Sin)},
	{name: "Cos", shapes: one, lo: -2, hi: 2, build: unary(G.Cos)},
	{name: "Exp", shapes: one, lo: -2, hi: 2, build: unary(G.Exp)},
	{name: "Log", shapes: one, lo: 0.5, hi: 2, build: unary(G.Log)},
	{name: "Log2", wrong: "by central differences", shapes: one, lo: 0.5, hi: 2, build: unary(G.Log2)},
	{name: "Neg", shapes: one, lo: -2, hi: 2, build: unary(G.Neg)},
	{name: "Square", shapes: one, lo: -2, hi: 2, build: unary(G.Square)},
	{name: "Sqrt", shapes: one, lo: 0.5, hi: 2, build: unary(G.Sqrt)},
	{name: "Inverse", shapes: one, lo: 0.5, hi: 2, build: unary(G.Inverse)},
	{name: "InverseSqrt", wrong: "by central differences", shapes: one, lo: 0.5, hi: 2, build: unary(G.InverseSqrt)},
	{name: "Cube", shapes: one, lo: -2, hi: 2, build: unary(G.Cube)},
	{name: "Tanh", shapes: one, lo: -2, hi: 2, build: unary(G.Tanh)},
	{name: "Sigmoid", shapes: one, lo: -2, hi: 2, build: unary(G.Sigmoid)},
	{name: "Log1p", shapes: one, lo: -0.5, hi: 2, build: unary(G.Log1p)},
	{name: "Expm1", shapes: one, lo: -2, hi: 2, build: unary(G.Expm1)},
	{name: "Softplus", shapes: one, lo: -2, hi: 2, build: unary(G.Softplus)},
	{name: "Rectify", shapes: one, lo: -2, hi: 2, build: unary(G.Rectify)},
	{name: "LeakyRelu", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.1) })},
	{name: "Mish", shapes: one, lo: -2, hi: 2, build: unary(G.Mish)},
	{name: "Add", shapes: two, lo: -2, hi: 2, build: binary(G.Add)},
	{name: "Sub", shapes: two, lo: -2, hi: 2, build: binary(G.Sub)},
	{name: "HadamardProd", shapes: two, lo: -2, hi: 2, build: binary(G.HadamardProd)},
	{name: "HadamardProd of itself", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.HadamardProd(x, x)
	})},
	{name: "HadamardDiv", shapes: two, lo: 0.5, hi: 2, build: binary(G.HadamardDiv)},
	{name: "Pow", shapes: two, lo: 0.5, hi: 2, build: binary(G.Pow)},
	{name: "Pow constant", shapes: one, lo: 0.5, hi: 2, build: func(in []*G.Node) (*G.Node, error) { return G.Pow(in[0], constant(in, 3)) }},
	{name: "Add scalar", shapes: [][]int{{3, 4}, {}}, lo: -2, hi: 2, build: binary(G.Add)},
	{name: "Sub scalar", shapes: [][]int{{3, 4}, {}}, lo: -2, hi: 2, build: binary(G.Sub)},
	{name: "Sub from scalar", shapes: [][]int{{}, {3, 4}}, lo: -2, hi: 2, build: binary(G.Sub)},
	{name: "Mul scalar", shapes: [][]int{{3, 4}, {}}, lo: -2, hi: 2, build: binary(G.HadamardProd)},
	{name: "Div scalar", shapes: [][]int{{3, 4}, {}}, lo: 0.5, hi: 2, build: binary(G.HadamardDiv)},
	{name: "Div of scalar", shapes: [][]int{{}, {3, 4}}, lo: 0.5, hi: 2, build: binary(G.HadamardDiv)},
	{name: "Mul constant", shapes: one, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) { return G.Mul(in[0], constant(in, 3)) }},
	{name: "BroadcastAdd rows", shapes: [][]int{{3, 4}, {1, 4}}, lo: -2, hi: 2, build: broadcast(G.BroadcastAdd, nil, []byte{0})},
	{name: "BroadcastAdd columns", shapes: [][]int{{3, 4}, {3, 1}}, lo: -2, hi: 2, build: broadcast(G.BroadcastAdd, nil, []byte{1})},
	{name: "BroadcastAdd vector", shapes: [][]int{{3, 4}, {4}}, lo: -2, hi: 2, build: broadcast(G.BroadcastAdd, nil, []byte{0})},
	{name: "BroadcastAdd 3 of 1", shapes: [][]int{{2, 3, 4}, {1, 1, 4}}, lo: -2, hi: 2, build: broadcast(G.BroadcastAdd, nil, []byte{0, 1})},
	{name: "BroadcastSub", shapes: [][]int{{3, 4}, {1, 4}}, lo: -2, hi: 2, build: broadcast(G.BroadcastSub, nil, []byte{0})},
	{name: "BroadcastSub left", shapes: [][]int{{1, 4}, {3, 4}}, lo: -2, hi: 2, build: broadcast(G.BroadcastSub, []byte{0}, nil)},
	{name: "BroadcastHadamardProd", shapes: [][]int{{3, 4}, {3, 1}}, lo: -2, hi: 2, build: broadcast(G.BroadcastHadamardProd, nil, []byte{1})},
	{name: "BroadcastHadamardDiv", shapes: [][]int{{3, 4}, {3, 1}}, lo: 0.5, hi: 2, build: broadcast(G.BroadcastHadamardDiv, nil, []byte{1})},
	{name: "BroadcastPow", shapes: [][]int{{3, 4}, {3, 1}}, lo: 0.5, hi: 2, build: broadcast(G.BroadcastPow, nil, []byte{1})},
	{name: "Mul", shapes: [][]int{{3, 4}, {4, 5}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "Mul matrix vector", shapes: [][]int{{3, 4}, {4}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "Mul vector matrix", shapes: [][]int{{3}, {3, 4}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "Mul vectors", shapes: [][]int{{4}, {4}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "OuterProd", wrong: "Gorgonia's gradient of input 0 has the shape (4)", shapes: [][]int{{3}, {4}}, lo: -2, hi: 2,
		build: binary(G.OuterProd)},
	{name: "BatchedMatMul", shapes: [][]int{{2, 3, 4}, {2, 4, 5}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.BatchedMatMul(in[0], in[1]) }},
	{name: "BatchedMatMul transposed B", shapes: [][]int{{2, 3, 4}, {2, 5, 4}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.BatchedMatMul(in[0], in[1], false, true) }},
	{name: "BatchedMatMul transposed A", shapes: [][]int{{2, 4, 3}, {2, 4, 5}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.BatchedMatMul(in[0], in[1], true, false) }},
	{name: "BatchedMatMul 4", shapes: [][]int{{2, 2, 3, 4}, {2, 2, 4, 5}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.BatchedMatMul(in[0], in[1]) }},
	{name: "Tensordot", shapes: [][]int{{2, 3, 4}, {4, 3, 5}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.Tensordot([]int{1, 2}, []int{1, 0}, in[0], in[1]) }},
	{name: "SoftMax", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.SoftMax(x) })},
	{name: "SoftMax axis 0", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.SoftMax(x, 0) })},
	{name: "SoftMax 3", shapes: cube, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.SoftMax(x, 2) })},
	{name: "LogSoftMax", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.LogSoftMax(x) })},
	{name: "LogSumExp", fails: "Shape mismatch", shapes: one, lo: -2, hi: 2,
		build: unary(func(x *G.Node) (*G.Node, error) { return G.LogSumExp(x, 1) })},
	{name: "Sum", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Sum(x) })},
	{name: "Sum axis 0", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Sum(x, 0) })},
	{name: "Sum axis 1", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Sum(x, 1) })},
	{name: "Sum of 3, axis 1", shapes: cube, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Sum(x, 1) })},
	{name: "Sum of 3, two axes", shapes: cube, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Sum(x, 0, 2) })},
	{name: "Mean", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Mean(x) })},
	{name: "Mean axis 1", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Mean(x, 1) })},
	{name: "Mean of 3, axis 0", shapes: cube, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Mean(x, 0) })},
	{name: "Max", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Max(x) })},
	{name: "Max axis 1", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Max(x, 1) })},
	{name: "Max axis 0", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Max(x, 0) })},
	{name: "Norm 1", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Norm(x, 1, 1) })},
	{name: "Norm 2", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Norm(x, 1, 2) })},
	{name: "MinBetween", shapes: two, lo: -2, hi: 2, build: binary(G.MinBetween)},
	{name: "MaxBetween", shapes: two, lo: -2, hi: 2, build: binary(G.MaxBetween)},
	{name: "Reshape", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Reshape(x, tensor.Shape{2, 6}) })},
	{name: "Ravel", shapes: one, lo: -2, hi: 2, build: unary(G.Ravel)},
	{name: "Transpose", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Transpose(x) })},
	{name: "Transpose 3", shapes: cube, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Transpose(x, 2, 0, 1) })},
	{name: "Transpose, Mul", shapes: two, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node,
		error) {
		return G.Mul(in[0], G.Must(G.Transpose(in[1])))
	}},
	{name: "Concat 0", shapes: two, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) { return G.Concat(0, in...) }},
	{name: "Concat 1", shapes: two, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) { return G.Concat(1, in...) }},
	{name: "Concat 1 of 3", shapes: [][]int{{2, 3, 4}, {2, 2, 4}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.Concat(1, in...) }},
	{name: "Concat 1 of 4", shapes: [][]int{{2, 3, 4, 4}, {2, 2, 4, 4}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.Concat(1, in...) }},
	{name: "Unconcat", shapes: [][]int{{3, 4}}, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		parts, err := G.Unconcat(in[0], 1, 2)
		if err != nil {
			return nil, err
		}
		return G.HadamardProd(parts[0], parts[1])
	}},
	{name: "Slice rows", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(1, 3)) })},
	{name: "Slice columns", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, G.S(1, 3)) })},
	{name: "Slice both", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.Slice(x, G.S(0, 2), G.S(1, 3))
	})},
	{name: "Slice row", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(1)) })},
	{name: "Slice column", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, G.S(1)) })},
	{name: "Slice of 3", shapes: cube, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, G.S(1, 3)) })},
	{name: "Slice, then Mul", shapes: [][]int{{3, 4}, {2, 2}}, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		return G.Mul(G.Must(G.Slice(in[0], nil, G.S(1, 3))), in[1])
	}},
	{name: "Slice, then Add", shapes: [][]int{{3, 4}, {3, 2}}, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		return G.Add(G.Must(G.Slice(in[0], nil, G.S(1, 3))), in[1])
	}},
	{name: "Slice, then Tanh", shapes: one, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		return G.Tanh(G.Must(G.Slice(in[0], nil, G.S(1, 3))))
	}},
	{name: "At", fails: "no gradient of At", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.At(x, 1, 2)
	})},
	{name: "ByIndices", shapes: [][]int{{5, 4}, {3}}, lo: -2, hi: 2, index: 5,
		build: func(in []*G.Node) (*G.Node, error) { return G.ByIndices(in[0], in[1], 0) }},
	{name: "DiagFlat", fails: "no symbolic gradient", shapes: [][]int{{3}}, lo: -2, hi: 2, build: unary(G.DiagFlat)},
	{name: "Conv2d", shapes: [][]int{{2, 3, 6, 6}, {4, 3, 3, 3}}, lo: -1, hi: 1, build: func(in []*G.Node) (*G.Node, error) {
		return G.Conv2d(in[0], in[1], tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1})
	}},
	{name: "Conv2d with a stride", shapes: [][]int{{2, 3, 6, 6}, {4, 3, 2, 2}}, lo: -1, hi: 1, build: func(in []*G.Node) (*G.Node, error) {
		return G.Conv2d(in[0], in[1], tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}, []int{1, 1})
	}},
	{name: "Conv2d, uneven", shapes: [][]int{{2, 3, 5, 7}, {4, 3, 3, 1}}, lo: -1, hi: 1, build: func(in []*G.Node) (*G.Node, error) {
		return G.Conv2d(in[0], in[1], tensor.Shape{3, 1}, []int{1, 0}, []int{2, 1}, []int{1, 1})
	}},
	{name: "Conv2d with a dilation", shapes: [][]int{{2, 2, 7, 7}, {3, 2, 3, 3}}, lo: -1, hi: 1, build: func(in []*G.Node) (*G.Node, error) {
		return G.Conv2d(in[0], in[1], tensor.Shape{3, 3}, []int{0, 0}, []int{1, 1}, []int{2, 2})
	}},
	{name: "Conv1d", shapes: [][]int{{2, 3, 1, 8}, {4, 3, 1, 3}}, lo: -1, hi: 1, build: func(in []*G.Node) (*G.Node, error) {
		return G.Conv1d(in[0], in[1], 3, 1, 1, 1)
	}},
	{name: "MaxPool2D", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) {
		return G.MaxPool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})
	})},
	{name: "MaxPool2D, overlapping", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) {
		return G.MaxPool2D(x, tensor.Shape{3, 3}, []int{0, 0}, []int{1, 1})
	})},
	{name: "MaxPool2D, padded", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) {
		return G.MaxPool2D(x, tensor.Shape{2, 2}, []int{1, 1}, []int{2, 2})
	})},
	{name: "MaxPool1D", shapes: [][]int{{2, 3, 1, 8}}, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.MaxPool1D(x, 2, 0, 2)
	})},
	{name: "AveragePool2D", wrong: "by central differences", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) {
		return G.AveragePool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})
	})},
	{name: "GlobalAveragePool2D", fails: "no symbolic gradient", shapes: image, lo: -2, hi: 2, build: unary(G.GlobalAveragePool2D)},
	{name: "Upsample2D", shapes: [][]int{{2, 3, 3, 3}}, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.Upsample2D(x, 2)
	})},
	{name: "BatchNorm 2", wrong: "a second forward pass gives other bits", shapes: [][]int{{4, 3}, {4, 3}, {4, 3}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) {
			y, _, _, _, err := G.BatchNorm(in[0], in[1], in[2], 0.9, 1e-5)
			return y, err
		}},
	{name: "BatchNorm 4", wrong: "a second forward pass gives other bits", shapes: [][]int{{2, 3, 4, 4}, {2, 3, 4, 4}, {2, 3, 4, 4}}, lo: -2,
		hi: 2, build: func(in []*G.Node) (*G.Node, error) {
			y, _, _, _, err := G.BatchNorm(in[0], in[1], in[2], 0.9, 1e-5)
			return y, err
		}},
	{name: "Log of 1+x", shapes: one, lo: 0.5, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		return G.Log(G.Must(G.Add(in[0], constant(in, 1))))
	}},
	{name: "Pow of 1+x", shapes: two, lo: 0.5, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		return G.Pow(G.Must(G.Add(in[0], constant(in, 1))), in[1])
	}},
	{name: "Log1p of -x", shapes: one, lo: -2, hi: 0.5, build: func(in []*G.Node) (*G.Node, error) {
		return G.Log1p(G.Must(G.Neg(in[0])))
	}},
	{name: "Mul by a column", shapes: [][]int{{3, 4}, {4, 1}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "Mul of a row", shapes: [][]int{{1, 4}, {4, 3}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "Mul of a column by a row", shapes: [][]int{{3, 1}, {1, 4}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "Mul of a row by a column", shapes: [][]int{{1, 4}, {4, 1}}, lo: -2, hi: 2, build: binary(G.Mul)},
	{name: "BroadcastAdd channels", shapes: [][]int{{2, 3, 4, 4}, {1, 3, 1, 1}}, lo: -2, hi: 2,
		build: broadcast(G.BroadcastAdd, nil, []byte{0, 2, 3})},
	{name: "BroadcastAdd of 1 element", shapes: [][]int{{3, 4}, {1, 1}}, lo: -2, hi: 2, build: broadcast(G.BroadcastAdd, nil, []byte{0, 1})},
	{name: "Sum of a vector", shapes: [][]int{{5}}, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Sum(x) })},
	{name: "Sum of a column", shapes: [][]int{{5, 1}}, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Sum(x, 0) })},
	{name: "Mean of 4", wrong: "by central differences", shapes: image, lo: -2, hi: 2,
		build: unary(func(x *G.Node) (*G.Node, error) { return G.Mean(x, 2, 3) })},
	{name: "SoftMax 4", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.SoftMax(x, 3) })},
	{name: "SoftMax of 3, axis 1", shapes: cube, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.SoftMax(x, 1) })},
	{name: "Concat of three", shapes: [][]int{{3, 4}, {3, 2}, {3, 1}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.Concat(1, in...) }},
	{name: "Slice of 4", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.Slice(x, nil, nil, G.S(1, 4), G.S(2, 6))
	})},
	{name: "Slice, then Reshape", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) {
		return G.Reshape(G.Must(G.Slice(x, nil, G.S(1, 3))), tensor.Shape{6})
	})},
	{name: "Transpose, then Add", shapes: [][]int{{3, 4}, {4, 3}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) { return G.Add(G.Must(G.Transpose(in[0])), in[1]) }},
	{name: "Transpose 4", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) { return G.Transpose(x, 0, 2, 3, 1) })},
	{name: "Gather of LogSoftMax", shapes: [][]int{{4, 5}, {3}}, lo: -2, hi: 2, index: 4, build: func(in []*G.Node) (*G.Node, error) {
		return G.Mean(G.Must(G.ByIndices(G.Must(G.LogSoftMax(in[0])), in[1], 0)))
	}},
	{name: "ByIndices axis 1", shapes: [][]int{{3, 5}, {4}}, lo: -2, hi: 2, index: 5,
		build: func(in []*G.Node) (*G.Node, error) { return G.ByIndices(in[0], in[1], 1) }},
	{name: "GroupNorm", prints: true, shapes: [][]int{{2, 4, 3, 3}, {1, 4, 1, 1}, {1, 4, 1, 1}}, lo: -2, hi: 2,
		build: func(in []*G.Node) (*G.Node, error) {
			return G.GroupNorm(in[0], in[1], in[2], 2, 4, 1e-5)
		}},
	{name: "Dropout", wrong: "panicked", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.Dropout(x, 0.5)
	})},
	{name: "UniformRandomNode", wrong: "panicked", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) {
		return G.HadamardProd(x, G.UniformRandomNode(x.Graph(), x.Dtype(), 0, 1, 3, 4))
	})},
	{name: "BinaryXent", fails: "Use Log1p", shapes: two, lo: 0.2, hi: 0.8, build: binary(G.BinaryXent)},
	{name: "Im2Col", shapes: image, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node, error) {
		return G.Im2Col(x, tensor.Shape{2, 2}, tensor.Shape{0, 0}, tensor.Shape{1, 1}, tensor.Shape{1, 1})
	})},
	{name: "Gt times x", shapes: two, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		return G.HadamardProd(in[0], G.Must(G.Gt(in[0], in[1], true)))
	}},
	{name: "Sign times x", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.HadamardProd(x, G.Must(G.Sign(x)))
	})},
	{name: "GELU", shapes: one, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		x := in[0]
		inner := G.Must(G.Mul(G.Must(G.Add(x, G.Must(G.Mul(G.Must(G.Cube(x)), constant(in, 0.044715))))), constant(in, math.Sqrt(2/math.Pi))))
		return G.HadamardProd(G.Must(G.Mul(x, constant(in, 0.5))), G.Must(G.Add(G.Must(G.Tanh(inner)), constant(in, 1))))
	}},
	{name: "SiLU", shapes: one, lo: -2, hi: 2, build: unary(func(x *G.Node) (*G.Node,
		error) {
		return G.HadamardProd(x, G.Must(G.Sigmoid(x)))
	})},
	{name: "used twice", shapes: two, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		h := G.Must(G.Tanh(G.Must(G.Add(in[0], in[1]))))
		return G.Add(G.Must(G.Square(h)), G.Must(G.HadamardProd(h, in[0])))
	}},
	{name: "LayerNorm", shapes: [][]int{{3, 4}, {1, 4}, {1, 4}}, lo: -2, hi: 2, build: func(in []*G.Node) (*G.Node, error) {
		column := func(n *G.Node) *G.Node { return G.Must(G.Reshape(n, tensor.Shape{3, 1})) }
		centred := G.Must(G.BroadcastSub(in[0], column(G.Must(G.Mean(in[0], 1))), nil, []byte{1}))
		deviation := G.Must(G.Sqrt(G.Must(G.Add(column(G.Must(G.Mean(G.Must(G.Square(centred)), 1))), constant(in, 1e-5)))))
		unit := G.Must(G.BroadcastHadamardDiv(centred, deviation, nil, []byte{1}))
		return G.BroadcastAdd(G.Must(G.BroadcastHadamardProd(unit, in[1], nil, []byte{0})), in[2], nil, []byte{0})
	}},
}

func (c opCase) inputs() []input {
	in := make([]input, len(c.shapes))
	for i, s := range c.shapes {
		in[i] = input{tensorops.Float64, s, true}
	}
	if c.index > 0 {
		in[len(in)-1].dtype = tensorops.Int32
	}
	return in
}

func (c opCase) open(float tensor.Dtype) (*instance, error) {
	return newInstance(func(_ *G.ExprGraph, in, _ []*G.Node) ([]*G.Node, error) {
		n, err := c.build(in)
		return []*G.Node{n}, err
	}, c.inputs(), nil, float)
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// draw makes inputs: numbers that lie well apart, in some order, so that central differences
// don't step over the corners of an operation.
func (c opCase) draw(r *rand.Rand, float tensor.Dtype) []tensorops.Array {
	in := make([]tensorops.Array, len(c.shapes))
	for i, x := range c.inputs() {
		in[i].Shape = x.shape
		n := elements(x.shape)
		for _, at := range r.Perm(n) {
			v := c.lo + (c.hi-c.lo)*(float64(at)+0.5+0.25*float64(i)+0.2*r.Float64())/float64(n)
			switch {
			case x.dtype == tensorops.Int32:
				in[i].Int = append(in[i].Int, int32(r.IntN(c.index)))
			case float == tensor.Float64:
				in[i].Double = append(in[i].Double, v)
			default:
				in[i].Float = append(in[i].Float, float32(v))
			}
		}
	}
	return in
}

func number(a tensorops.Array, i int) float64 {
	if a.Double != nil {
		return a.Double[i]
	}
	return float64(a.Float[i])
}

func setNumber(a tensorops.Array, i int, v float64) {
	if a.Double != nil {
		a.Double[i] = v
		return
	}
	a.Float[i] = float32(v)
}

func clone(arrays []tensorops.Array) []tensorops.Array {
	out := make([]tensorops.Array, len(arrays))
	for i, a := range arrays {
		out[i] = tensorops.Array{Shape: a.Shape, Float: append([]float32(nil), a.Float...), Double: append([]float64(nil), a.Double...),
			Int: append([]int32(nil), a.Int...)}
		if a.Float == nil {
			out[i].Float = nil
		}
	}
	return out
}

// zeros are gradients for some arrays, none for integers.
func zeros(of []tensorops.Array) []tensorops.Array {
	out := make([]tensorops.Array, len(of))
	for i, a := range of {
		switch {
		case a.Float != nil:
			out[i] = tensorops.Array{Shape: a.Shape, Float: make([]float32, len(a.Float))}
		case a.Double != nil:
			out[i] = tensorops.Array{Shape: a.Shape, Double: make([]float64, len(a.Double))}
		}
	}
	return out
}

func sameBits(a, b []tensorops.Array) bool {
	return fmt.Sprintf("%x", a) == fmt.Sprintf("%x", b)
}

// scratches keeps the memory of backward passes, so that it is used again.
var scratches = map[*instance]*memory{}

func scratchOf(x *instance) *memory {
	if scratches[x] == nil {
		scratches[x] = newMemory(x.program.slots - x.program.forwardSlots)
	}
	return scratches[x]
}

// gradients runs an instance forward and backward.
func gradients(x *instance, in, dout []tensorops.Array) (out, din []tensorops.Array, err error) {
	if out, err = x.forward(in, nil); err != nil {
		return nil, nil, err
	}
	if dout == nil {
		return clone(out), nil, nil
	}
	din = zeros(in)
	err = x.backward(dout, din, nil, scratchOf(x))
	return clone(out), din, err
}

// checkOp compares an operation's gradient with central differences, and asks that results
// don't depend on what the instance computed before, nor on which instance computes them,
// and that inputs stay as they are.
func checkOp(c opCase, float tensor.Dtype) error {
	x, err := c.open(float)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(5, 6))
	in := c.draw(r, float)
	before := clone(in)
	probe, _, err := gradients(x, in, nil)
	if err != nil {
		return err
	}
	dout := clone(probe)
	for i := range dout[0].Len() {
		setNumber(dout[0], i, 2*r.Float64()-1)
	}
	out, din, err := gradients(x, in, dout)
	if err != nil {
		return err
	}
	want := c.value
	if want == nil {
		want = values[c.name]
	}
	if want != nil && float == tensor.Float64 {
		if err := checkValue(want, in, out[0]); err != nil {
			return err
		}
	}
	if !sameBits(out, probe) {
		return errors.New("a second forward pass gives other bits")
	}
	if _, _, err := gradients(x, c.draw(r, float), dout); err != nil { // other numbers in between
		return err
	}
	y, err := c.open(float)
	if err != nil {
		return err
	}
	for i, other := range []*instance{x, y} {
		o, d, err := gradients(other, in, dout)
		if err != nil {
			return err
		}
		if !sameBits(o, out) || !sameBits(d, din) {
			return fmt.Errorf("bits depend on the past or the instance (%d)", i)
		}
	}
	if !sameBits(in, before) {
		return errors.New("it writes to its inputs")
	}
	step, tolerance := 1e-6, 1e-6
	if float == tensor.Float32 {
		step, tolerance = 4e-3, 1e-2
	}
	loss := func() (float64, error) {
		o, _, err := gradients(x, in, nil)
		if err != nil {
			return 0, err
		}
		sum := 0.0
		for i := range o[0].Len() {
			sum += number(o[0], i) * number(dout[0], i)
		}
		return sum, nil
	}
	for i, a := range in {
		if a.Int != nil {
			continue
		}
		for j := range a.Len() {
			v := number(a, j)
			setNumber(a, j, v+step)
			hi, err := loss()
			if err != nil {
				return err
			}
			setNumber(a, j, v-step)
			lo, err := loss()
			if err != nil {
				return err
			}
			setNumber(a, j, v)
			want, got := (hi-lo)/(2*step), 0.0
			if din[i].Len() > 0 {
				got = number(din[i], j)
			}
			if d := math.Abs(got - want); !(d <= tolerance*(1+math.Abs(want))) {
				return fmt.Errorf("the gradient of input %d, element %d is %g, by central differences %g", i, j, got, want)
			}
		}
	}
	return nil
}

// TestOps is the table of operations: those that are wrong are refused, and were they not,
// the check would find them.
func TestOps(t *testing.T) {
	log.SetOutput(io.Discard) // of operations that print
	defer log.SetOutput(os.Stderr)
	for _, c := range opCases {
		for _, float := range []tensor.Dtype{tensor.Float64, tensor.Float32} {
			t.Run(fmt.Sprintf("%s %v", c.name, float), func(t *testing.T) {
				err := checkOp(c, float)
				if c.wrong == "" && c.fails == "" && !c.prints {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if c.fails != "" {
					if err == nil || !strings.Contains(err.Error(), c.fails) {
						t.Errorf("want an error with %q, not %v", c.fails, err)
					}
					return
				}
				if !errors.Is(err, ErrRefused) {
					t.Errorf("not refused: %v", err)
				}
				if c.prints {
					return
				}
				kept := refusals
				defer func() { refusals = kept }()
				refusals = nil
				if err := checkOp(c, float); err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("unrefused, want an error with %q, not %v: is the refusal still needed?", c.wrong, err)
				}
			})
		}
	}
}
