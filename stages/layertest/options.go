package layertest

import (
	"cmp"
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// B in a Shape stands for the number of samples of a microbatch, which varies.
const B = -1

// Tensor describes an input of the layer, or a field of the data that it reads.
type Tensor struct {
	Name  string // name of the field; for an input it is used in messages only and may be ""
	Shape []int  // such as {B, 8}
	DType tensorops.DType
	// Float32 numbers are drawn from a normal distribution with mean Mean and standard deviation
	// Scale (0: 1), integers from 0 to Classes−1.
	Mean, Scale float64
	Classes     int
	// Fill, if not nil, sets the numbers of a microbatch instead.
	Fill func(microbatch int, a tensorops.Array)
}

// Options describes how to check a layer.
type Options struct {
	Name    string   // in messages; "": "layer"
	Inputs  []Tensor // in order; integers get no gradient
	Fields  []Tensor // fields of the data: those that the layer's Fields names
	Samples int      // samples of the first microbatch; the second has one more; 0: 3
	Seed    uint64   // seed of all random numbers

	// Step is half the distance between the two points whose losses are compared. Tolerance is the
	// largest relative error of a gradient. 0 means 1/128 and 1e-5; for a layer with Calls, which
	// compute in float32, 1/32 and 1e-3.
	Step, Tolerance float64
	// Elements is the number of elements of each input and parameter that are tested, spread over
	// it; 0: 40.
	Elements int
}

// The defaults.
const (
	defaultSamples, defaultElements = 3, 40
	exactStep, exactTolerance       = 1.0 / 128, 1e-5
	callStep, callTolerance         = 1.0 / 32, 1e-3
)

func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "layer")
	o.Samples, o.Elements = cmp.Or(o.Samples, defaultSamples), cmp.Or(o.Elements, defaultElements)
	return o
}

// microbatches is the largest number of microbatches in flight.
const microbatches = 3

// samples returns the number of samples of a microbatch.
func (o Options) samples(microbatch int) int { return o.Samples + microbatch%2 }

// grid is the unit to which numbers are rounded, so that a number plus a step is exact in float32.
const grid = 1.0 / (1 << 12)

func round(v float32) float32 { return float32(int(v/grid)) * grid }

// draw makes the numbers of a tensor in a microbatch. what is the key of the random ones.
func (o Options) draw(t Tensor, what string, microbatch int) (tensorops.Array, error) {
	shape := make([]int, len(t.Shape))
	for i, d := range t.Shape {
		if shape[i] = d; d == B {
			shape[i] = o.samples(microbatch)
		} else if d < 1 {
			return tensorops.Array{}, fmt.Errorf("%s has shape %v: each dimension must be B or at least 1", what, t.Shape)
		}
	}
	a := tensorops.NewArray(t.DType, shape)
	key := rng.NewKey(o.Seed, rng.StringStream(fmt.Sprintf("layertest/%s/%d", what, microbatch)))
	rng.Normal(a.Float, key, 0, t.Mean, cmp.Or(t.Scale, 1))
	for i := range a.Int {
		a.Int[i] = int32(rng.Intn(key, 0, uint64(i), uint64(max(t.Classes, 1))))
	}
	if t.Fill != nil {
		t.Fill(microbatch, a)
	}
	for i, v := range a.Float {
		a.Float[i] = round(v)
	}
	return a, a.Check()
}
