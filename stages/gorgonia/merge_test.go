package gorgonia

import (
	"math/rand/v2"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestNotMerged: Gorgonia makes one node of two that it takes for the same. Operations that
// differ only in what they are set to must stay apart.
func TestNotMerged(t *testing.T) {
	conv := func(pad, stride, dilation int) func(*G.Node) (*G.Node, error) {
		return func(x *G.Node) (*G.Node, error) {
			return G.Im2Col(x, tensor.Shape{2, 2}, tensor.Shape{pad, pad}, tensor.Shape{stride, stride}, tensor.Shape{dilation, dilation})
		}
	}
	pool := func(kernel, pad, stride int) func(*G.Node) (*G.Node, error) {
		return func(x *G.Node) (*G.Node, error) {
			return G.MaxPool2D(x, tensor.Shape{kernel, kernel}, []int{pad, pad}, []int{stride, stride})
		}
	}
	type one = func(*G.Node) (*G.Node, error)
	for name, forms := range map[string][]one{
		"SoftMax": {
			func(x *G.Node) (*G.Node, error) { return G.SoftMax(x, 0) }, func(x *G.Node) (*G.Node, error) { return G.SoftMax(x, 3) },
		},
		"LogSoftMax": {
			func(x *G.Node) (*G.Node, error) { return G.LogSoftMax(x, 0) }, func(x *G.Node) (*G.Node, error) { return G.LogSoftMax(x, 3) },
		},
		"Sum": {
			func(x *G.Node) (*G.Node, error) { return G.Sum(x, 0) }, func(x *G.Node) (*G.Node, error) { return G.Sum(x, 3) },
			func(x *G.Node) (*G.Node, error) { return G.Sum(x, 0, 1) }, func(x *G.Node) (*G.Node, error) { return G.Sum(x) },
			func(x *G.Node) (*G.Node, error) { return G.Max(x, 0) }, func(x *G.Node) (*G.Node, error) { return G.Max(x, 3) },
			func(x *G.Node) (*G.Node, error) { return G.Mean(x, 0) },
		},
		"Transpose": {
			func(x *G.Node) (*G.Node, error) { return G.Transpose(x, 1, 0, 2, 3) },
			func(x *G.Node) (*G.Node, error) { return G.Transpose(x, 0, 1, 3, 2) },
		},
		"Slice": {
			func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(0, 2)) }, func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(2, 4)) },
			func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, G.S(0, 2)) },
			func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, nil, G.S(0, 2)) },
			func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(1)) }, func(x *G.Node) (*G.Node, error) { return G.Slice(x, G.S(2)) },
			func(x *G.Node) (*G.Node, error) { return G.Slice(x, nil, G.S(1)) },
		},
		"Reshape": {
			func(x *G.Node) (*G.Node, error) { return G.Reshape(x, tensor.Shape{16, 16}) },
			func(x *G.Node) (*G.Node, error) { return G.Reshape(x, tensor.Shape{256}) },
			func(x *G.Node) (*G.Node, error) { return G.Reshape(x, tensor.Shape{4, 64}) },
		},
		"Concat": {
			func(x *G.Node) (*G.Node, error) { return G.Concat(0, x, x) }, func(x *G.Node) (*G.Node, error) { return G.Concat(1, x, x) },
		},
		"Im2Col":    {conv(0, 1, 1), conv(1, 1, 1), conv(0, 2, 1), conv(0, 1, 2)},
		"MaxPool2D": {pool(2, 0, 2), pool(2, 1, 2), pool(2, 0, 1), pool(3, 0, 1)},
		"Upsample2D": {
			func(x *G.Node) (*G.Node, error) { return G.Upsample2D(x, 2) }, func(x *G.Node) (*G.Node, error) { return G.Upsample2D(x, 3) },
		},
		"LeakyRelu": {
			func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.1) }, func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.2) },
		},
		"Mul constant": {
			func(x *G.Node) (*G.Node, error) { return G.Mul(x, G.NewConstant(2.0)) },
			func(x *G.Node) (*G.Node, error) { return G.Mul(x, G.NewConstant(3.0)) },
		},
		"constants": {
			func(x *G.Node) (*G.Node, error) { return G.HadamardProd(x, constantTensor(1)) },
			func(x *G.Node) (*G.Node, error) { return G.HadamardProd(x, constantTensor(2)) },
		},
		"unary": {G.Abs, G.Sin, G.Cos, G.Exp, G.Neg, G.Square, G.Cube, G.Tanh, G.Sigmoid, G.Softplus, G.Expm1, G.Rectify},
		"compare": {
			func(x *G.Node) (*G.Node, error) { return G.HadamardProd(x, G.Must(G.Gt(x, G.Must(G.Neg(x)), true))) },
			func(x *G.Node) (*G.Node, error) { return G.HadamardProd(x, G.Must(G.Lt(x, G.Must(G.Neg(x)), true))) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			together, err := newInstance(func(_ *G.ExprGraph, in, _ []*G.Node) (outs []*G.Node, err error) {
				for _, f := range forms {
					y, err := f(in[0])
					if err != nil {
						return nil, err
					}
					outs = append(outs, y)
				}
				return outs, nil
			}, []input{{tensorops.Float64, []int{4, 4, 4, 4}, true}}, nil, tensor.Float64)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			in := []tensorops.Array{{Shape: []int{4, 4, 4, 4}}}
			for range 256 {
				in[0].Double = append(in[0].Double, r.NormFloat64())
			}
			outs, _, err := gradients(together, in, nil)
			if err != nil {
				t.Fatal(err)
			}
			douts := zeros(outs)
			var dins []float64
			for i, f := range forms {
				alone, err := newInstance(func(_ *G.ExprGraph, in, _ []*G.Node) ([]*G.Node, error) {
					y, err := f(in[0])
					return []*G.Node{y}, err
				}, together.inputs, nil, tensor.Float64)
				if err != nil {
					t.Fatal(err)
				}
				for j := range douts[i].Double {
					douts[i].Double[j] = r.NormFloat64()
				}
				out, din, err := gradients(alone, in, douts[i:i+1])
				if err != nil {
					t.Fatal(err)
				}
				if !sameBits(out, outs[i:i+1]) {
					t.Errorf("form %d gives another result beside the others", i)
				}
				if dins == nil {
					dins = make([]float64, 256)
				}
				for j, v := range din[0].Double {
					dins[j] += v
				}
			}
			_, din, err := gradients(together, in, douts)
			if err != nil {
				t.Fatal(err)
			}
			for j, v := range din[0].Double {
				if d := v - dins[j]; !(d < 1e-9 && d > -1e-9) {
					t.Fatalf("together the gradient is %g at %d, apart %g", v, j, dins[j])
				}
			}
		})
	}
}

// TestMerged: the package's documentation tells of what Gorgonia merges though it is not the
// same. Should this fail, that can go.
func TestMerged(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(2, 3), G.WithName("x"))
	if G.Must(G.SoftMax(x)) != G.Must(G.LogSoftMax(x)) {
		t.Error("SoftMax and LogSoftMax of the same node are two nodes")
	}
}

// constantTensor makes 256 numbers, of which the last differs.
func constantTensor(last float64) *G.Node {
	data := make([]float64, 256)
	data[255] = last
	return G.NewConstant(tensor.New(tensor.WithShape(4, 4, 4, 4), tensor.WithBacking(data)))
}
