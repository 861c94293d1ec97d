// Command bench measures the training of a multilayer perceptron of width 1,024. It compares a
// program that uses Gorgonia alone, with Gorgonia's BLAS and with the engine's, to runs of the
// engine: with layers that are Gorgonia graphs, on one stage and on two, and with the engine's own
// layers.
//
//	go run ./stages/gorgonia/bench -rounds 5
//
// Each round measures every variant in turn. A step is 16 microbatches of 64 rows through 8 layers,
// and an update. All variants compute the same products; the engine's own layers use GELU instead
// of ReLU.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/gonum/blas/gonum"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/stages/gorgonia"
	"github.com/troupe-ml/troupe/tensorops"
)

const layers, width, rows, microbatches = 8, 1024, 64, 16

func main() {
	rounds := flag.Int("rounds", 3, "run this `number` of rounds")
	seconds := flag.Float64("seconds", 3, "measure each variant for this many `seconds` in a round")
	flag.Parse()
	stages.RegisterFamily("graphs", family)
	samples.Register("random", func(samples.Options) (train, val samples.Dataset, err error) { return random{}, nil, nil })
	if err := measure(*rounds, *seconds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// way is one of the compared variants. run trains for some seconds and returns rows per second.
type way struct {
	name string
	run  func(seconds float64) (float64, error)
	rate []float64
}

func measure(rounds int, seconds float64) error {
	gorgonia.UseEngineBLAS()
	engineBLAS := G.WhichBLAS()
	ways := []*way{
		{name: "Gorgonia alone, its own BLAS, one core", run: func(s float64) (float64, error) { return alone(s, gonum.Implementation{}, 1) }},
		{name: "Gorgonia alone, its own BLAS, all cores", run: func(s float64) (float64,
			error) {
			return alone(s, gonum.Implementation{}, runtime.NumCPU())
		}},
		{name: "Gorgonia alone, the engine's BLAS", run: func(s float64) (float64, error) { return alone(s, engineBLAS, 1) }},
		{name: "graphs, 1 stage", run: func(s float64) (float64, error) { return engine(s, "graphs", 1) }},
		{name: "graphs, 2 stages", run: func(s float64) (float64, error) { return engine(s, "graphs", 2) }},
		{name: "the engine's own layers, 1 stage", run: func(s float64) (float64, error) { return engine(s, "mlp", 1) }},
		{name: "the engine's own layers, 2 stages", run: func(s float64) (float64, error) { return engine(s, "mlp", 2) }},
	}
	for range rounds {
		for _, w := range ways {
			G.Use(engineBLAS) // for layers, which plug it in once
			rate, err := w.run(seconds)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.rate = append(w.rate, rate)
		}
	}
	base := ways[2]
	fmt.Printf("%-42s %10s %9s   %s\n", "", "rows/s", "GFLOP/s", "relative to Gorgonia alone with the engine's BLAS, round by round")
	for _, w := range ways {
		var ratios []float64
		for i, r := range w.rate {
			ratios = append(ratios, r/base.rate[i])
		}
		fmt.Printf("%-42s %10.0f %9.1f   %.2f (%.2f to %.2f)\n", w.name, median(w.rate), median(w.rate)*products/1e9, median(ratios),
			slices.Min(ratios), slices.Max(ratios))
	}
	return nil
}

// products is the number of floating-point operations of a row's matrix products. The gradient of
// the first layer's input is not computed.
const products = (3*layers - 1) * 2 * width * width

func median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// perceptron adds layers to a graph: act(x·W + b), and the last one without act.
func perceptron(x *G.Node, params []*G.Node, last bool) (*G.Node, error) {
	for i := 0; i < len(params); i += 2 {
		product, err := G.Mul(x, params[i])
		if err == nil {
			x, err = G.BroadcastAdd(product, params[i+1], nil, []byte{0})
		}
		if err == nil && (!last || i < len(params)-2) {
			x, err = G.Rectify(x)
		}
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

// family is the perceptron as two graphs of half the layers each.
func family(g *stages.Graph, _ stages.Config) error {
	x := []stages.Value{g.Input("x")}
	for half := range 2 {
		spec := gorgonia.Spec{Build: func(_ *G.ExprGraph, in, params []*G.Node) ([]*G.Node, error) {
			y, err := perceptron(in[0], params, half == 1)
			return []*G.Node{y}, err
		}}
		for i := range layers / 2 {
			spec.Params = append(spec.Params,
				stages.LayerParam{Name: fmt.Sprintf("%d.weight", i), Shape: []int{width, width}, Init: stages.Init{Std: math.Sqrt(2. / width)}},
				stages.LayerParam{Name: fmt.Sprintf("%d.bias", i), Shape: []int{1, width}})
		}
		x = g.Add(fmt.Sprintf("half%d", half), gorgonia.New(spec), x...)
	}
	g.Loss("loss", stages.NewMSE("y"), x...)
	return nil
}

// random generates the samples to train on.
type random struct{}

var numbers = func() []float32 {
	v := make([]float32, rows*microbatches*width)
	rng.Normal(v, rng.NewKey(1, 1), 0, 0, 1)
	return v
}()

func (random) Fields() []samples.Field {
	return []samples.Field{{Name: "x", Shape: []int{width}}, {Name: "y", Shape: []int{width}}}
}
func (random) Len() int { return rows * microbatches }
func (random) At(i int) (samples.Sample, error) {
	row := tensorops.Array{Shape: []int{width}, Float: numbers[i*width:][:width]}
	return samples.Sample{row, row}, nil
}

// engine trains with a run of the engine, one core for each stage.
func engine(seconds float64, family string, count int) (float64, error) {
	out, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(out) }() // the folder is temporary
	text := fmt.Sprintf(`
run = {out = %q, steps = 100000, eval_every = 0, checkpoint_every = 0, stall_after_s = 0.0}
model = {family = %q}
data = {format = "random"}
batch = {sequences = %d, microbatch = %d}
optimizer = {name = "sgd", lr = 1e-6, momentum = 0.0, weight_decay = 0.0, clip_norm = 0.0}
pipeline = {stages = %d}
device = {threads = %d}
`, out, family, rows*microbatches, rows, count, count)
	cfg, err := config.Parse("bench", []byte(text), nil, nil)
	if err != nil {
		return 0, err
	}
	if family == "mlp" {
		cfg.Model.Layers, cfg.Model.Hidden = layers-1, width
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run, err := troupe.Start(ctx, cfg, troupe.Options{})
	if err != nil {
		return 0, err
	}
	var began time.Time
	steps := 0
	for e := range run.Events() {
		s, ok := e.(troupe.StepEvent)
		switch {
		case !ok || s.Step < 1:
		case s.Step == 2: // the graphs are built by then
			began = time.Now()
		case s.Step > 2:
			steps++
			if took := time.Since(began).Seconds(); took > seconds {
				run.Kill()
				_, _ = run.Wait() // the run was killed
				return float64(steps*rows*microbatches) / took, nil
			}
		}
	}
	_, err = run.Wait()
	return 0, err
}

// alone trains with Gorgonia alone: its machine, and its solver after every 16 microbatches.
func alone(seconds float64, blas G.BLAS, cores int) (float64, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	G.Use(blas)
	g := G.NewGraph()
	matrix := func(name string, dims ...int) *G.Node {
		n := 1
		for _, d := range dims {
			n *= d
		}
		v := make([]float32, n)
		rng.Normal(v, rng.NewKey(2, rng.StringStream(name)), 0, 0, math.Sqrt(2./width))
		return G.NewMatrix(g, tensor.Float32, G.WithShape(dims...), G.WithName(name),
			G.WithValue(tensor.New(tensor.WithShape(dims...), tensor.WithBacking(v))))
	}
	x, y := matrix("x", rows, width), matrix("y", rows, width)
	var params []*G.Node
	for i := range layers {
		params = append(params, matrix(fmt.Sprintf("w%d", i), width, width), matrix(fmt.Sprintf("b%d", i), 1, width))
	}
	out, err := perceptron(x, params, true)
	if err != nil {
		return 0, err
	}
	off, err := G.Sub(out, y)
	if err != nil {
		return 0, err
	}
	square, err := G.Square(off)
	if err != nil {
		return 0, err
	}
	loss, err := G.Sum(square)
	if err != nil {
		return 0, err
	}
	if _, err := G.Grad(loss, params...); err != nil {
		return 0, err
	}
	machine := G.NewTapeMachine(g, G.BindDualValues(params...))
	defer func() { _ = machine.Close() }() // nothing to lose
	solver := G.NewVanillaSolver(G.WithLearnRate(1e-9))
	step := func() error {
		for range microbatches {
			machine.Reset()
			if err := machine.RunAll(); err != nil {
				return err
			}
		}
		return solver.Step(G.NodesToValueGrads(params))
	}
	if err := step(); err != nil {
		return 0, err
	}
	began, steps := time.Now(), 0
	for time.Since(began).Seconds() < seconds {
		if err := step(); err != nil {
			return 0, err
		}
		steps++
	}
	return float64(steps*rows*microbatches) / time.Since(began).Seconds(), nil
}
