package gorgonia

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mlp is a chain of layers of one width, with biases and tanh.
func mlp(layers int) Build {
	return func(_ *G.ExprGraph, in, params []*G.Node) ([]*G.Node, error) {
		x := in[0]
		for i := range layers {
			z, err := G.Mul(x, params[2*i])
			if err != nil {
				return nil, err
			}
			if z, err = G.BroadcastAdd(z, params[2*i+1], nil, []byte{0}); err != nil {
				return nil, err
			}
			if x, err = G.Tanh(z); err != nil {
				return nil, err
			}
		}
		return []*G.Node{x}, nil
	}
}

func mlpWeights(layers, width int) (declared []weight, values []tensorops.Array) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range layers {
		declared = append(declared, weight{fmt.Sprintf("w%d", i), []int{width, width}}, weight{fmt.Sprintf("b%d", i), []int{1, width}})
		values = append(values, drawn(r, 1/math.Sqrt(float64(width)), width, width), drawn(r, 0.1, 1, width))
	}
	return declared, values
}

func drawn(r *rand.Rand, size float64, shape ...int) tensorops.Array {
	a := tensorops.Array{Shape: shape, Float: make([]float32, elements(shape))}
	for i := range a.Float {
		a.Float[i] = float32(size * r.NormFloat64())
	}
	return a
}

func float32s(shape ...int) input { return input{tensorops.Float32, shape, true} }

// inputsOf are inputs whose gradients are wanted.
func inputsOf(arrays []tensorops.Array) []input {
	in := make([]input, len(arrays))
	for i, a := range arrays {
		in[i] = input{a.DType(), a.Shape, a.Int == nil}
	}
	return in
}

// microbatch is one microbatch's data and, once run, what came of it.
type microbatch struct {
	in, dout           []tensorops.Array
	out, din, dweights []tensorops.Array
	x                  *instance
}

func newMicrobatch(seed uint64, rows, width int) *microbatch {
	r := rand.New(rand.NewPCG(seed, 9))
	return &microbatch{in: []tensorops.Array{drawn(r, 1, rows, width)}, dout: []tensorops.Array{drawn(r, 1, rows, width)}}
}

func (b *microbatch) forward(m *model, weights []tensorops.Array) (err error) {
	if b.x, err = m.take(inputsOf(b.in)); err != nil {
		return err
	}
	out, err := b.x.forward(b.in, weights)
	b.out = clone(out)
	return err
}

func (b *microbatch) backward(m *model, weights []tensorops.Array) error {
	b.din, b.dweights = zeros(b.in), zeros(weights)
	err := m.backward(b.x, b.dout, b.din, b.dweights)
	m.give(b.x)
	b.x = nil
	return err
}

func (b *microbatch) bits() string { return fmt.Sprintf("%x %x %x", b.out, b.din, b.dweights) }

// TestAgainstGorgonia: outputs and gradients have the bits of Gorgonia's own machine and
// Backpropagate, with the same BLAS.
func TestAgainstGorgonia(t *testing.T) {
	const layers, width, rows = 3, 16, 5
	declared, weights := mlpWeights(layers, width)
	m := newModel(mlp(layers), declared, tensor.Float32)
	b := newMicrobatch(1, rows, width)
	if err := b.forward(m, weights); err != nil {
		t.Fatal(err)
	}
	if err := b.backward(m, weights); err != nil {
		t.Fatal(err)
	}
	g := G.NewGraph()
	node := func(name string, a tensorops.Array) *G.Node {
		return G.NewMatrix(g, tensor.Float32, G.WithShape(a.Shape...), G.WithName(name),
			G.WithValue(tensor.New(tensor.WithShape(a.Shape...), tensor.WithBacking(a.Float))))
	}
	x, dy := node("x", b.in[0]), node("dy", b.dout[0])
	wrt := G.Nodes{x}
	for i, w := range weights {
		wrt = append(wrt, node(declared[i].name, w))
	}
	out, err := mlp(layers)(g, []*G.Node{x}, wrt[1:])
	if err != nil {
		t.Fatal(err)
	}
	grads, err := G.Backpropagate(G.Nodes{out[0]}, G.Nodes{dy}, wrt)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]G.Value, 1+len(grads))
	for i, n := range append(G.Nodes{out[0]}, grads...) {
		G.Read(n, &values[i])
	}
	machine := G.NewTapeMachine(g)
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	for i, got := range append(append(clone(b.out), b.din...), b.dweights...) {
		want, err := arrayOf(values[i], got.Shape)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Float, want.Float) {
			t.Errorf("result %d: %v, Gorgonia says %v", i, got, want)
		}
	}
}

// TestInFlight: with eight microbatches in flight, interleaved in any way and on any
// goroutine, each has the bits that it has alone, and weights stay as they are.
func TestInFlight(t *testing.T) {
	const layers, width, flight = 3, 24, 8
	declared, weights := mlpWeights(layers, width)
	kept := clone(weights)
	want := make([]string, flight)
	alone := newModel(mlp(layers), declared, tensor.Float32)
	rows := func(i int) int { return 3 + i%2 } // two shapes
	for i := range want {
		b := newMicrobatch(uint64(i), rows(i), width)
		if err := errors.Join(b.forward(alone, weights), b.backward(alone, weights)); err != nil {
			t.Fatal(err)
		}
		want[i] = b.bits()
	}
	m := newModel(mlp(layers), declared, tensor.Float32)
	r := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		batches := make([]*microbatch, flight)
		for _, i := range r.Perm(flight) {
			batches[i] = newMicrobatch(uint64(i), rows(i), width)
			if err := batches[i].forward(m, weights); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range r.Perm(flight) {
			if err := batches[i].backward(m, weights); err != nil {
				t.Fatal(err)
			}
			if batches[i].bits() != want[i] {
				t.Fatalf("microbatch %d has other bits with others in flight", i)
			}
		}
	}
	var wg sync.WaitGroup
	for i := range flight {
		wg.Go(func() {
			for range 20 {
				b := newMicrobatch(uint64(i), rows(i), width)
				if err := errors.Join(b.forward(m, weights), b.backward(m, weights)); err != nil {
					t.Error(err)
					return
				}
				if b.bits() != want[i] {
					t.Errorf("microbatch %d has other bits beside other goroutines", i)
					return
				}
			}
		})
	}
	wg.Wait()
	if !sameBits(weights, kept) {
		t.Error("the weights were written to")
	}
}

// TestNoGrowth: many steps take no more memory than a few, and no goroutine stays.
func TestNoGrowth(t *testing.T) {
	steps := 1000
	if raceDetector || testing.Short() {
		steps = 100
	}
	const layers, width, flight = 4, 64, 8
	declared, weights := mlpWeights(layers, width)
	m := newModel(mlp(layers), declared, tensor.Float32)
	batches := make([]*microbatch, flight)
	for i := range batches {
		batches[i] = newMicrobatch(uint64(i), 16, width)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // empties the pools
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	run := func(steps int) {
		for range steps {
			for _, b := range batches {
				if err := b.forward(m, weights); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range batches {
				if err := b.backward(m, weights); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	run(5)
	memory, goroutines := heap(), runtime.NumGoroutine()
	run(steps)
	if grown := heap() - memory; grown > 512<<10 {
		t.Errorf("%d steps with %d in flight took %d bytes more than 5", steps, flight, grown)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if len(m.idle) != flight || len(m.scratch) != 1 {
		t.Errorf("%d graphs and %d scratch memories are kept, want %d and 1", len(m.idle), len(m.scratch), flight)
	}
}

// TestShapesBound: what is kept has a bound, whatever shapes come.
func TestShapesBound(t *testing.T) {
	declared, weights := mlpWeights(1, 4)
	m := newModel(mlp(1), declared, tensor.Float32)
	for rows := 1; rows <= 3*LimitIdle; rows++ {
		b := newMicrobatch(1, rows, 4)
		if err := errors.Join(b.forward(m, weights), b.backward(m, weights)); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.idle) != LimitIdle || len(m.scratch) != LimitIdle {
		t.Errorf("%d graphs and %d scratch memories are kept, the limit is %d", len(m.idle), len(m.scratch), LimitIdle)
	}
}

// TestForwardOnly: a pass that no backward follows changes nothing for those that come.
func TestForwardOnly(t *testing.T) {
	declared, weights := mlpWeights(2, 8)
	m := newModel(mlp(2), declared, tensor.Float32)
	first := newMicrobatch(1, 4, 8)
	if err := errors.Join(first.forward(m, weights), first.backward(m, weights)); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(3) {
		b := newMicrobatch(seed+5, 4, 8)
		if err := b.forward(m, weights); err != nil {
			t.Fatal(err)
		}
		m.give(b.x)
	}
	again := newMicrobatch(1, 4, 8)
	if err := errors.Join(again.forward(m, weights), again.backward(m, weights)); err != nil {
		t.Fatal(err)
	}
	if again.bits() != first.bits() || len(m.idle) != 1 {
		t.Errorf("a forward pass alone left something behind (%d graphs)", len(m.idle))
	}
	if err := m.backward(m.idle[0], again.dout, again.din, again.dweights); !errors.Is(err, errOrder) {
		t.Errorf("backward twice: %v", err)
	}
}

// TestNaN passes through.
func TestNaN(t *testing.T) {
	declared, weights := mlpWeights(1, 4)
	m := newModel(mlp(1), declared, tensor.Float32)
	b := newMicrobatch(1, 2, 4)
	b.in[0].Float[0] = float32(math.NaN())
	if err := errors.Join(b.forward(m, weights), b.backward(m, weights)); err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(float64(b.out[0].Float[0])) || !math.IsNaN(float64(b.dweights[0].Float[0])) {
		t.Errorf("a NaN got lost: %v", b.out)
	}
}

// TestBuildRefuses: what a Build may do wrong.
func TestBuildRefuses(t *testing.T) {
	other := G.NewGraph()
	stranger := G.NewMatrix(other, tensor.Float32, G.WithShape(2, 4), G.WithName("stranger"))
	calls := 0
	params := []weight{{"w", []int{4, 4}}, {"b", []int{1, 4}}}
	good := func(in, p []*G.Node) *G.Node {
		return G.Must(G.BroadcastAdd(G.Must(G.Mul(in[0], p[0])), p[1], nil, []byte{0}))
	}
	one := func(n *G.Node) []*G.Node { return []*G.Node{n} }
	for _, c := range []struct {
		name  string
		build Build
		is    error
		says  string
	}{
		{"panics", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { panic("oops") }, ErrGraph, "panic: oops"},
		{"index", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { return one(p[7]), nil }, ErrGraph, "index out of range"},
		{"error", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { return nil, os.ErrInvalid }, os.ErrInvalid, "inputs of [[2 4]]"},
		{"nothing", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { return nil, nil }, ErrGraph, "no outputs"},
		{"nil", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { return one(nil), nil }, ErrGraph, "nil as output 0"},
		{"another graph", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { return one(stranger), nil }, ErrGraph,
			"not a node of the graph that was passed to Build"},
		{"the same twice", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			y := good(in, p)
			return []*G.Node{y, y}, nil
		}, ErrGraph, "outputs 0 and 1 are the same"},
		{"shapes", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { return one(G.Must(G.Mul(p[1], in[0]))), nil }, ErrGraph,
			"Inner dimensions do not match"},
		{"unused parameter", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) { return one(G.Must(G.Mul(in[0], p[0]))), nil }, ErrGraph,
			`the outputs do not depend on parameter "b"`},
		{"no gradient", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			return one(G.Must(G.BroadcastAdd(G.Must(G.Mul(in[0], p[0])), G.Must(G.Sign(p[1])), nil, []byte{0}))), nil
		}, ErrGraph, `parameter "b" has no gradient`},
		{"a leaf of its own", func(g *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			return one(G.Must(G.Add(good(in, p), G.NewMatrix(g, tensor.Float32, G.WithShape(2, 4), G.WithName("own"), G.WithInit(G.Ones()))))), nil
		}, ErrGraph, `node "own" is neither an input nor a parameter`},
		{"integers", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			return one(G.Must(G.Gt(good(in, p), in[0], false))), nil
		}, ErrGraph, "output 0 has type bool"},
		{"refused", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			return one(G.Must(G.InverseSqrt(good(in, p)))), nil
		}, ErrRefused, "use Inverse of Sqrt"},
		{"float64", func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			wide := G.Must(G.ConvType(good(in, p), tensor.Float32, tensor.Float64))
			return one(G.Must(G.ConvType(wide, tensor.Float64, tensor.Float32))), nil
		}, ErrGraph, "float64"},
		{"another each time", func(g *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			calls++
			return one(G.Must(G.Mul(good(in, p), G.NewConstant(float32(calls))))), nil
		}, ErrGraph, "two different graphs for the same shapes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newModel(c.build, params, tensor.Float32)
			var err error
			for range 2 { // without giving the first one back
				if err == nil {
					_, err = m.take([]input{float32s(2, 4)})
				}
			}
			if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("want %v with %q, not: %v", c.is, c.says, err)
			}
		})
	}
}

// TestInputsRefused: what doesn't fit the graph is an error, and the graph can be used on.
func TestInputsRefused(t *testing.T) {
	declared, weights := mlpWeights(1, 4)
	m := newModel(mlp(1), declared, tensor.Float32)
	b := newMicrobatch(1, 2, 4)
	if err := errors.Join(b.forward(m, weights), b.backward(m, weights)); err != nil {
		t.Fatal(err)
	}
	want := b.bits()
	bad := func(a tensorops.Array) []tensorops.Array { return []tensorops.Array{a} }
	x, err := m.take(inputsOf(b.in))
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string][]tensorops.Array{
		"none":    nil,
		"short":   bad(tensorops.Array{Shape: []int{2, 4}, Float: make([]float32, 7)}),
		"float64": bad(tensorops.Array{Shape: []int{2, 4}, Double: make([]float64, 8)}),
		"shape":   bad(tensorops.Array{Shape: []int{3, 4}, Float: make([]float32, 12)}),
	} {
		if _, err := x.forward(in, weights); !errors.Is(err, ErrInput) {
			t.Errorf("input %s: %v", name, err)
		}
	}
	if _, err := x.forward(b.in, weights[:1]); !errors.Is(err, ErrInput) {
		t.Errorf("a parameter less: %v", err)
	}
	if _, err := m.take([]input{float32s(0, 4)}); !errors.Is(err, ErrInput) {
		t.Errorf("an empty input: %v", err)
	}
	if _, err := x.forward(b.in, weights); err != nil {
		t.Fatal(err)
	}
	if err := m.backward(x, bad(tensorops.Array{Shape: []int{4, 2}, Float: make([]float32, 8)}), b.din, b.dweights); !errors.Is(err,
		ErrInput) {
		t.Errorf("a gradient of another shape: %v", err)
	}
	m.give(x)
	if err := errors.Join(b.forward(m, weights), b.backward(m, weights)); err != nil || b.bits() != want {
		t.Errorf("after refusals: %v", err)
	}
}

// TestIndexOutOfRange: an operation that fails, or panics, is an error that names it, and the
// graph can be used on.
func TestIndexOutOfRange(t *testing.T) {
	m := newModel(func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
		y, err := G.ByIndices(p[0], in[0], 0)
		return []*G.Node{y}, err
	}, []weight{{"table", []int{5, 3}}}, tensor.Float32)
	table := []tensorops.Array{drawn(rand.New(rand.NewPCG(1, 2)), 1, 5, 3)}
	x, err := m.take([]input{{tensorops.Int32, []int{2}, false}})
	if err != nil {
		t.Fatal(err)
	}
	indices := func(i ...int32) []tensorops.Array { return []tensorops.Array{{Shape: []int{2}, Int: i}} }
	for _, bad := range []int32{5, 1 << 30, -1} {
		if _, err := x.forward(indices(0, bad), table); err == nil || !strings.Contains(err.Error(), "ByIndices") {
			t.Errorf("index %d of 5: %v", bad, err)
		}
	}
	out, err := x.forward(indices(4, 1), table)
	if err != nil || out[0].Float[0] != table[0].Float[12] {
		t.Errorf("%v, %v", out, err)
	}
}

// TestSharedConstant: Build may use one tensor as a constant of all graphs.
func TestSharedConstant(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shared := tensor.New(tensor.WithShape(4, 4), tensor.WithBacking(drawn(r, 1, 4, 4).Float))
	m := newModel(func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
		y, err := G.Mul(G.Must(G.Mul(in[0], p[0])), G.NewConstant(shared))
		return []*G.Node{y}, err
	}, []weight{{"w", []int{4, 4}}}, tensor.Float32)
	weights := []tensorops.Array{drawn(r, 1, 4, 4)}
	want := newMicrobatch(1, 3, 4)
	if err := errors.Join(want.forward(m, weights), want.backward(m, weights)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				b := newMicrobatch(1, 3, 4)
				if err := errors.Join(b.forward(m, weights), b.backward(m, weights)); err != nil || b.bits() != want.bits() {
					t.Errorf("other bits beside others, or %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestManyInOut: inputs of several types and shapes, one without use, several outputs,
// scalars.
func TestManyInOut(t *testing.T) {
	build := func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
		rows := G.Must(G.ByIndices(p[0], in[0], 0))
		y := G.Must(G.HadamardProd(rows, in[1]))
		return []*G.Node{y, G.Must(G.Mean(G.Must(G.Square(y)))), G.Must(G.Mul(in[1], p[1]))}, nil
	}
	m := newModel(build, []weight{{"table", []int{5, 3}}, {"scale", nil}}, tensor.Float32)
	r := rand.New(rand.NewPCG(1, 2))
	in := []tensorops.Array{{Shape: []int{2}, Int: []int32{4, 4}}, drawn(r, 1, 2, 3), drawn(r, 1, 7)}
	params := []tensorops.Array{drawn(r, 1, 5, 3), drawn(r, 1)}
	x, err := m.take(inputsOf(in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := x.forward(in, params)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 3 || fmt.Sprint(out[0].Shape, out[1].Shape, out[2].Shape) != "[2 3] [] [2 3]" {
		t.Fatalf("outputs %v", out)
	}
	dout := []tensorops.Array{drawn(r, 0, 2, 3), {Shape: nil, Float: []float32{1}}, drawn(r, 0, 2, 3)}
	copy(dout[2].Float, []float32{1, 1, 1, 1, 1, 1})
	din, dparams := zeros(in), zeros(params)
	setNumber(din[2], 3, 1)
	if err := m.backward(x, dout, din, dparams); err != nil {
		t.Fatal(err)
	}
	if !sameBits(din[2:], zeros(in)[2:]) {
		t.Errorf("the gradient of an unused input is %v", din[2])
	}
	sum := float32(0)
	for i := range 3 {
		k := 4*3 + i
		// d mean(y²)/dw = 2 y x / 6, for both uses of row 4.
		w, a, b := params[0].Float[k], in[1].Float[i], in[1].Float[3+i]
		if want := w * (a*a + b*b) / 3; math.Abs(float64(dparams[0].Float[k]-want)) > 1e-5 {
			t.Errorf("the gradient of the table is %g at %d, want %g", dparams[0].Float[k], k, want)
		}
		sum += a + b
	}
	if d := dparams[1].Float[0] - sum; math.Abs(float64(d)) > 1e-5 {
		t.Errorf("the gradient of a scalar is %v, want %g", dparams[1], sum)
	}
}
