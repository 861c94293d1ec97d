package grid

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

func init() { stages.RegisterFamily("test-skips", skips) }

// skips is a classifier whose layers take what earlier ones make, near and far; some of it in
// views, whole numbers among it.
func skips(g *stages.Graph, c stages.Config) error {
	x := g.Embed("input", &flatten{}, g.Input("x"))[0]
	a := g.Add("a", stages.NewDense(64, 16, "gelu", 0.1), x)[0]
	halves := g.Add("halves", &halves{}, a)
	b := g.Add("b", stages.NewDense(8, 16, "tanh", 0), halves[1])[0]
	s := g.Add("s", &plus{}, a, b)[0]
	d := g.Add("d", stages.NewDense(16, 8, "relu", 0), s)[0]
	e := g.Add("e", &plus{}, d, halves[0])[0]
	f := g.Add("f", stages.NewDense(8, 16, "gelu", 0), e)[0]
	h := g.Add("h", &plus{}, f, a)[0]
	g.Output("hidden", h)
	g.Loss("loss", stages.NewCrossEntropy("y", 10), g.Add("out", stages.NewDense(16, 10, "", 0), h)...)
	return nil
}

type noParams struct{}

func (noParams) Params() []stages.LayerParam                                     { return nil }
func (noParams) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// flatten makes rows.
type flatten struct{ noParams }

func (flatten) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{in[0].View(p.Samples(), in[0].Len()/p.Samples())}
}

func (flatten) InputGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) []tensorops.Tensor {
	return nil
}

// plus adds two.
type plus struct{ noParams }

func (plus) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(in[0])
	p.Call("plus", in, []tensorops.Tensor{y}, func(reads, writes []tensorops.Array) error {
		for i, v := range reads[0].Float {
			writes[0].Float[i] = v + reads[1].Float[i]
		}
		return nil
	})
	return []tensorops.Tensor{y}
}

func (plus) InputGrad(_ *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{dout[0], dout[0]}
}

// halves are views of what it takes.
type halves struct{ noParams }

func (halves) Outputs() int        { return 2 }
func (halves) WholeBackward() bool { return true }

func (halves) Forward(_ *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	k := in[0].Cols() / 2
	return []tensorops.Tensor{in[0].Columns(0, k), in[0].Columns(k, 2*k)}
}

func (halves) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx, k := p.AllocLike(in[0]), in[0].Cols()/2
	p.Copy(dx.Columns(0, k), dout[0])
	p.Copy(dx.Columns(k, 2*k), dout[1])
	return []tensorops.Tensor{dx}
}

// TestSkipsBits: a graph's run is the same in every layout and order, whatever is applied ahead
// or recomputed.
func TestSkipsBits(t *testing.T) {
	dir := t.TempDir()
	want := filepath.Join(dir, "want")
	sets := []string{"model.family=test-skips", "optimizer.clip_norm=0.9", "run.steps=12", "run.checkpoint_every=6", "run.eval_every=4"}
	testrun.TrainDigits(t, want, sets...)
	for i, more := range [][]string{
		{"pipeline.stages=4"},
		{"pipeline.stages=3", "pipeline.schedule=auto", "pipeline.chunks=2"},
		{"pipeline.stages=3", "pipeline.schedule=zb-h1", "pipeline.post_validation=true"},
		{"pipeline.stages=2", "pipeline.schedule=zb-v", "pipeline.recompute=full", "pipeline.post_validation=true"},
		{"pipeline.stages=4", "pipeline.chunks=2", "pipeline.schedule=interleaved"},
		{"pipeline.stages=2", "pipeline.chunks=3", "pipeline.schedule=interleaved", "pipeline.layout=EEt||tt|tt|ttt|tL"},
		{"pipeline.stages=11"},
		{"pipeline.stages=4", "pipeline.defer_weights=2"},
		{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=interleaved", "pipeline.defer_weights=3"},
	} {
		out := filepath.Join(dir, fmt.Sprint(i))
		testrun.TrainDigits(t, out, append(append([]string{}, sets...), more...)...)
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, 12)
	}
}
