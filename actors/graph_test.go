package actors_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

func init() { stages.RegisterFamily("test-random-graph", buildRandomGraph) }

// graphWidth is the width of all values of a random graph, graphClasses that of its last one.
const graphWidth, graphClasses = 4, 3

// buildRandomGraph makes a graph of Options such as "input", "dense 0", "sum 0 1 1", "fork 2",
// "signs 0", "apply 1 0": a kind of layer, and the places of its inputs among all outputs so far. Those of
// signs besides are counted by themselves, and are the last input of apply. What nobody takes is
// added up before the loss.
func buildRandomGraph(g *stages.Graph, c stages.Config) error {
	var numbers, signs graphValues
	for i, text := range c.Options {
		words := strings.Fields(text)
		var in []stages.Value
		for k, w := range words[1:] {
			at, err := strconv.Atoi(w)
			if err != nil {
				return err
			}
			from := &numbers
			if words[0] == "apply" && k == 1 {
				from = &signs
			}
			in = append(in, from.take(at))
		}
		name := fmt.Sprintf("%d.%s", i, words[0])
		switch words[0] {
		case "input":
			numbers.add(g.Input("x"))
		case "dense":
			numbers.add(g.Add(name, stages.NewDense(graphWidth, graphWidth, "gelu", 0.2), in...)...)
		case "norm":
			numbers.add(g.Add(name, stages.NewLayerNorm(graphWidth), in...)...)
		case "sum":
			numbers.add(g.Add(name, graphSum{}, in...)...)
		case "fork":
			numbers.add(g.Add(name, graphFork{}, in...)...)
		case "whole":
			numbers.add(g.Add(name, graphWhole{}, in...)...)
		case "signs":
			out := g.Add(name, graphSigns{}, in...)
			numbers.add(out[0])
			signs.add(out[1])
		case "apply":
			numbers.add(g.Add(name, graphApply{}, in...)...)
		}
	}
	x := g.Add("rest", graphSum{}, numbers.rest()...)
	for i, s := range signs.rest() {
		x = g.Add(fmt.Sprintf("rest.%d", i), graphApply{}, append(x, s)...)
	}
	g.Loss("loss", stages.NewCrossEntropy("y", graphClasses), g.Add("output", stages.NewDense(graphWidth, graphClasses, "", 0), x...)...)
	return nil
}

// graphValues are outputs of a graph's layers, and which of them are taken.
type graphValues struct {
	all   []stages.Value
	taken map[int]bool
}

func (v *graphValues) add(out ...stages.Value) { v.all = append(v.all, out...) }

func (v *graphValues) take(at int) stages.Value {
	if v.taken == nil {
		v.taken = make(map[int]bool)
	}
	v.taken[at] = true
	return v.all[at]
}

func (v *graphValues) rest() (rest []stages.Value) {
	for i, value := range v.all {
		if !v.taken[i] {
			rest = append(rest, value)
		}
	}
	return rest
}

// graphSum adds its inputs, and gives each of them its own gradient as it is.
type graphSum struct{}

func (graphSum) Params() []stages.LayerParam { return nil }

func (graphSum) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if len(in) == 1 {
		return in
	}
	y := p.AllocLike(in[0])
	p.Add(y, in[0], in[1])
	for _, x := range in[2:] {
		p.Add(y, y, x)
	}
	return []tensorops.Tensor{y}
}

func (graphSum) InputGrad(_ *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	return slices.Repeat(dout, len(in))
}

func (graphSum) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// graphFork returns what it was given, and that times a number that it learns.
type graphFork struct{}

func (graphFork) Outputs() int { return 2 }

func (graphFork) Params() []stages.LayerParam {
	return []stages.LayerParam{{Name: "factor", Shape: []int{graphWidth, graphWidth}, Init: stages.Init{Std: 0.5}}}
}

func (graphFork) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(in[0])
	p.MatMul(y, in[0], p.Weight(0), tensorops.MatMulOpts{})
	return []tensorops.Tensor{in[0], y}
}

func (graphFork) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	if !p.WantsGrad(0) {
		return nil
	}
	dx := p.AllocLike(in[0])
	p.Copy(dx, dout[0])
	p.MatMul(dx, dout[1], p.Weight(0), tensorops.MatMulOpts{TransB: true, Accumulate: true})
	return []tensorops.Tensor{dx}
}

func (graphFork) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	p.MatMul(p.Grad(0), in[0], dout[1], tensorops.MatMulOpts{TransA: true, Accumulate: true})
}

// graphWhole is graphFork with its gradients made together.
type graphWhole struct{ graphFork }

func (graphWhole) WholeBackward() bool { return true }

func (l graphWhole) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	l.WeightGrad(p, in, dout)
	return l.graphFork.InputGrad(p, in, dout)
}

// graphSigns returns what it was given, and the signs as whole numbers.
type graphSigns struct{}

func (graphSigns) Params() []stages.LayerParam { return nil }
func (graphSigns) Outputs() int                { return 2 }
func (graphSigns) NoGrad(out int) bool         { return out == 1 }

func (graphSigns) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	signs := p.Alloc(tensorops.Int32, in[0].Shape()...)
	p.Call("signs", in, []tensorops.Tensor{signs}, func(reads, writes []tensorops.Array) error {
		for i, v := range reads[0].Float {
			writes[0].Int[i] = 1
			if v < 0 {
				writes[0].Int[i] = -1
			}
		}
		return nil
	})
	return []tensorops.Tensor{in[0], signs}
}

func (graphSigns) InputGrad(_ *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
	return dout[:1]
}

func (graphSigns) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// graphApply gives numbers other signs.
type graphApply struct{}

func (graphApply) Params() []stages.LayerParam { return nil }

func (graphApply) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	return graphApply{}.apply(p, in[0], in[1])
}

func (graphApply) apply(p *stages.Pass, x, signs tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(x)
	p.Call("apply signs", []tensorops.Tensor{x, signs}, []tensorops.Tensor{y}, func(reads, writes []tensorops.Array) error {
		for i, v := range reads[0].Float {
			writes[0].Float[i] = v * float32(reads[1].Int[i])
		}
		return nil
	})
	return []tensorops.Tensor{y}
}

func (graphApply) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	return graphApply{}.apply(p, dout[0], in[1])
}

func (graphApply) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// graphData are random samples of the fields x and y, whose length differs from microbatch to
// microbatch.
type graphData struct{ randomText }

func (graphData) TrainFields(step int64, first, count int, names []string) (all []tensorops.Array, _ error) {
	length := 1 + (first+int(step))%3
	for _, name := range names {
		key := rng.NewKey(77, rng.StringStream(fmt.Sprintf("%s/%d/%d", name, step, first)))
		if name == "x" {
			x := tensorops.NewArray(tensorops.Float32, []int{count, length, graphWidth})
			rng.Normal(x.Float, key, 0, 0, 1)
			all = append(all, x)
			continue
		}
		y := tensorops.NewArray(tensorops.Int32, []int{count, length})
		for i := range y.Int {
			y.Int[i] = int32(rng.Intn(key, 0, uint64(i), graphClasses))
		}
		all = append(all, y)
	}
	return all, nil
}

func (d graphData) EvalFields(first, count int, names []string) ([]tensorops.Array, error) {
	return d.TrainFields(0, first, count, names)
}

// graphRun trains a random graph.
type graphRun struct {
	options   []string
	table     *scheduler.Table
	chunks    int   // on each rank
	cuts      []int // borders of the chunks
	threads   int
	recompute int  // every so manieth microbatch; 0: none
	ahead     bool // post-validation
}

func (r graphRun) model() (*stages.Model, error) {
	return stages.NewModel(stages.Config{Family: "test-random-graph", Options: r.options, Fields: []stages.Field{
		{Name: "x", Shape: []int{-1, graphWidth}}, {Name: "y", DType: tensorops.Int32, Shape: []int{-1}, Classes: graphClasses},
	}})
}

func (r graphRun) run() (l *log, err error) {
	m, err := r.model()
	if err != nil {
		return nil, err
	}
	chunks, all, first := make([][]stages.ChunkSpec, r.table.NumRanks()), []stages.ChunkSpec(nil), 0
	for v, last := range append(slices.Clone(r.cuts), len(m.Symbols())) {
		spec := stages.ChunkSpec{Chunk: v, First: first, Last: last}
		rank := r.table.RankOf(v)
		chunks[rank], all, first = append(chunks[rank], spec), append(all, spec), last
	}
	routes := m.Routes(all)
	if err := r.table.SetSkips(actors.Skips(routes)); err != nil {
		return nil, err
	}
	evals, err := scheduler.Forwards(r.table.Placement, r.table.NumRanks(), r.chunks, 2)
	if err == nil {
		err = evals.SetSkips(r.table.Skips)
	}
	if err != nil {
		return nil, err
	}
	device, err := cpu.New(cpu.Options{Threads: r.threads})
	if err != nil {
		return nil, err
	}
	defer device.Close()
	l = &log{}
	spec := actors.Spec{
		Device: device, Routes: routes, Table: r.table, EvalTable: evals,
		Build: func(rank int, s tensorops.Stream) (actors.Compute, error) {
			st, err := stages.NewStage(m, s, chunks[rank], stages.Options{Seed: 5, Optimizer: adamw})
			if err != nil {
				return nil, err
			}
			return st, st.Load(stages.InitWeights(5), false)
		},
		Data: graphData{randomText{lens: []int{1, 1, 1, 1}}}, MicrobatchSize: 2, Context: 1, Sequences: 2 * r.table.Microbatches,
		Recompute: func(_, microbatch int) bool { return r.recompute > 0 && microbatch%r.recompute == 0 },
		Rate:      stages.Rate{LR: 1e-2, MinLR: 1e-3, Warmup: 1, Steps: 6, Decay: "cosine"}, ClipNorm: 1e-3,
		Steps: 2, EvalEvery: 1, WriteCheckpoint: l.write, OnEvent: l.event,
	}
	spec.PostValidate = r.ahead
	run, err := actors.Start(spec)
	if err != nil {
		return nil, err
	}
	return l, run.Wait().Err
}

// drawGraph draws the options of a random graph.
func drawGraph(t *rapid.T) (options []string) {
	options = []string{"input"}
	values, signs := 1, 0
	for range rapid.IntRange(1, 9).Draw(t, "layers") {
		kind := rapid.SampledFrom([]string{"dense", "dense", "sum", "sum", "fork", "norm", "input", "whole", "signs", "apply"}).Draw(t, "kind")
		if kind == "apply" && signs == 0 {
			kind = "signs"
		}
		inputs := 1
		switch kind {
		case "input":
			inputs = 0
		case "sum":
			inputs = rapid.IntRange(1, 4).Draw(t, "inputs")
		}
		text := kind
		for range inputs {
			text += fmt.Sprintf(" %d", rapid.IntRange(0, values-1).Draw(t, "input"))
		}
		values++
		switch kind {
		case "fork", "whole":
			values++
		case "signs":
			signs++
		case "apply":
			text += fmt.Sprintf(" %d", rapid.IntRange(0, signs-1).Draw(t, "signs"))
		}
		options = append(options, text)
	}
	return options
}

// TestRandomGraphs: any graph, cut anywhere, under any schedule, trains with the bits that it
// has in one chunk.
func TestRandomGraphs(t *testing.T) {
	specs := []scheduler.Spec{
		{Schedule: scheduler.OneFOneB, Ranks: 2, Chunks: 1}, {Schedule: scheduler.OneFOneB, Ranks: 4, Chunks: 1},
		{Schedule: scheduler.GPipe, Ranks: 3, Chunks: 1}, {Schedule: scheduler.ZBH1, Ranks: 3, Chunks: 1},
		{Schedule: scheduler.ZBH2, Ranks: 2, Chunks: 1},
		{Schedule: scheduler.Interleaved, Ranks: 2, Chunks: 3}, {Schedule: scheduler.ZB1P, Ranks: 2, Chunks: 2},
		{Schedule: scheduler.BreadthFirst, Ranks: 2, Chunks: 2},
		{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2}, {Schedule: scheduler.ZBV, Ranks: 3, Chunks: 2},
		{Schedule: scheduler.VMin, Ranks: 2, Chunks: 2},
		{Schedule: scheduler.DualPipeV, Ranks: 2, Chunks: 2}, {Schedule: scheduler.UShape, Ranks: 3, Chunks: 2},
		{Schedule: scheduler.OneFOneB, Ranks: 1, Chunks: 1},
	}
	const microbatches = 4
	rapid.Check(t, func(t *rapid.T) {
		want := graphRun{options: drawGraph(t), threads: 1, chunks: 1}
		m, err := want.model()
		if err != nil {
			t.Fatal(err)
		}
		layers := len(m.Symbols())
		spec := rapid.SampledFrom(specs).Draw(t, "schedule")
		spec.Microbatches = microbatches
		got := want
		got.chunks, got.threads, got.recompute = spec.Chunks, rapid.IntRange(1, 2).Draw(t, "threads"), rapid.IntRange(0, 2).Draw(t, "recompute")
		if want.table, err = scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: microbatches}); err != nil {
			t.Fatal(err)
		}
		if got.table, err = scheduler.Generate(spec); err != nil {
			t.Fatal(err)
		}
		got.ahead = rapid.Bool().Draw(t, "ahead")
		for range got.table.NumChunks - 1 {
			got.cuts = append(got.cuts, rapid.IntRange(0, layers).Draw(t, "cut"))
		}
		slices.Sort(got.cuts)
		a, err := want.run()
		if err != nil {
			t.Fatal(err)
		}
		b, err := got.run()
		if err != nil {
			t.Fatal(err)
		}
		steps := a.steps()
		if len(steps) != 3 || steps[2].GradNorm == nil || math.IsNaN(*steps[2].GradNorm) || *steps[2].GradNorm <= 1e-3 &&
			*steps[2].GradNorm != 0 {
			t.Fatalf("%d steps, the last one %+v", len(steps), steps[len(steps)-1])
		}
		if x, y := b.figures(), a.figures(); !slices.Equal(x, y) {
			t.Fatalf("%x, in one chunk %x", x, y)
		}
		x, y := a.saves[len(a.saves)-1].saved, b.saves[len(b.saves)-1].saved
		if !slices.EqualFunc(x, y, func(x, y stages.Saved) bool {
			return x.Name == y.Name && slices.EqualFunc(x.Data, y.Data, func(a,
				b float32) bool {
				return math.Float32bits(a) == math.Float32bits(b)
			})
		}) {
			t.Fatal("the weights or the optimizer's state differ")
		}
	})
}
