package stages_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

var distillLosses = map[string]*stages.Distill{
	"forward":       {Loss: stages.ForwardKL, TopK: 3, Temperature: 1, Weight: 1},
	"forward, warm": {Loss: stages.ForwardKL, TopK: 2, Temperature: 2, Weight: 0.7},
	"reverse":       {Loss: stages.ReverseKL, TopK: 3, Temperature: 1, Weight: 0.4},
	"reverse, all":  {Loss: stages.ReverseKL, TopK: 7, Temperature: 1.5, Weight: 1},
}

// taught makes microbatches with the tokens of a teacher: TopK ids of each position and their probabilities.
func taught(c stages.Config, d *stages.Distill, step int64, sequences, per int) []stages.Microbatch {
	mbs := microbatches(c, step, sequences, per)
	for k := range mbs {
		rows := per * c.Context
		ids := tensorops.NewArray(tensorops.Int32, []int{per, c.Context, d.TopK})
		logp := tensorops.NewArray(tensorops.Float32, []int{per, c.Context, d.TopK + 1})
		for n := range rows {
			sum := 0.0
			p := make([]float64, d.TopK+1)
			for i := range p {
				if p[i] = 1 + float64((7*n+3*i+k)%5); i == d.TopK && d.TopK == c.Vocab {
					p[i] = 0
				}
				sum += p[i]
			}
			for i := range p {
				logp.Float[n*(d.TopK+1)+i] = float32(math.Log(math.Max(p[i]/sum, 1e-8)))
			}
			for i := range d.TopK {
				ids.Int[n*d.TopK+i] = int32((n + i) % c.Vocab)
			}
		}
		mbs[k].Fields = []tensorops.Array{ids, logp}
		mbs[k].Targets[k] = tensorops.IgnoreTarget
	}
	return mbs
}

// TestDistillGradientIsTheSlope: the whole model's gradient against central differences in float64.
func TestDistillGradientIsTheSlope(t *testing.T) {
	if raceDetector {
		t.Skip("it computes in one goroutine")
	}
	for name, c := range preferenceModels {
		for loss, d := range distillLosses {
			t.Run(name+", "+loss, func(t *testing.T) {
				dev := ref.New()
				t.Cleanup(dev.Close)
				w := newWholeWith(t, dev, c, stages.Options{Seed: 5, Optimizer: adamw, Distill: d})
				mbs := taught(c, d, 3, 4, 4)
				w.checkSlopes(t, mbs)
			})
		}
	}
}

// TestDistillMatchesOracle: the CPU's loss and gradients against the float64 oracle's, however many logits exist at a time.
func TestDistillMatchesOracle(t *testing.T) {
	for name, c := range preferenceModels {
		for loss, d := range distillLosses {
			oracle := ref.New()
			t.Cleanup(oracle.Close)
			mbs := taught(c, d, 3, 40, 40)
			want, grads := newWholeWith(t, oracle, c, stages.Options{Seed: 5, Optimizer: adamw, Distill: d}).preferenceGrads(mbs)
			for _, logits := range []int{0, 64 * c.Vocab} {
				mbs[0].HeadLater = logits > 0
				o := stages.Options{Seed: 5, Optimizer: adamw, Distill: d, Logits: logits}
				what := fmt.Sprintf("%s, %s, %d logits", name, loss, logits)
				newWholeWith(t, newDevice(t, 2), c, o).checkAgainst(t, what, mbs, want, grads)
			}
		}
	}
}

// TestTeacher: a model that learns from itself has no divergence, and its gradient is zero.
func TestTeacher(t *testing.T) {
	for name, c := range preferenceModels {
		c.Dropout = 0
		if c.Adapter != nil {
			continue
		}
		for loss, d := range distillLosses {
			if d.Weight != 1 {
				continue
			}
			mbs := microbatches(c, 3, 4, 4)
			w := newWholeWith(t, newDevice(t, 2), c, stages.Options{Seed: 5, Inference: true, Distill: d})
			mb := mbs[0]
			mb.Collect = true
			mb.Train = false
			w.run(0, func(l *tensorops.List) { w.stages[0].Forward(l, 0, &mb) })
			outputs := w.stages[0].Outputs(0, mb.Index)
			if len(outputs) != 2 || !slices.Equal(outputs[0].Shape, []int{4, c.Context, d.TopK}) {
				t.Fatalf("%s: outputs %v", name, outputs)
			}
			for i := range mbs {
				mbs[i].Fields = []tensorops.Array{outputs[0].Array, outputs[1].Array}
			}
			o := stages.Options{Seed: 5, Optimizer: adamw, Distill: d}
			sum, grads := newWholeWith(t, newDevice(t, 2), c, o).preferenceGrads(mbs[:1])
			if math.Abs(sum) > 1e-4 {
				t.Errorf("%s, %s: the divergence from itself is %g", name, loss, sum)
			}
			for param, g := range grads {
				for _, v := range g {
					if math.Abs(v) > 1e-3 {
						t.Errorf("%s, %s: %s has the gradient %g", name, loss, param, v)
						break
					}
				}
			}
		}
	}
}

// TestDistillRefuses: a model that can't learn from a teacher is an error.
func TestDistillRefuses(t *testing.T) {
	m := newModel(t, preferenceModels["gpt2"])
	for _, k := range []int{0, 8} {
		_, err := stages.NewStage(m, newDevice(t, 1).NewStream("s"), []stages.ChunkSpec{{Last: len(m.Symbols())}},
			stages.Options{Distill: &stages.Distill{TopK: k}})
		if !errors.Is(err, stages.ErrModel) {
			t.Errorf("%d tokens of a vocabulary of 7: %v", k, err)
		}
	}
}
