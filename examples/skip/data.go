package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/tensorops"
)

// noise is the standard deviation of the noise added to each pixel; pixels are from 0 to 1.
const noise = 0.4

// noisyImages reads the square images of CSV files. Field x has noise, field y has none. A column
// of labels is left out if it is named.
func noisyImages(o samples.Options) (train, val samples.Dataset, err error) {
	o.Format = "csv"
	images, err := samples.OpenRun(o)
	if err != nil {
		return nil, nil, err
	}
	if train, err = newNoisy(images.Train, 1); err == nil && images.Val != nil {
		val, err = newNoisy(images.Val, 2)
	}
	return train, val, err
}

type noisy struct {
	samples.Dataset
	shape []int
	seed  uint64
}

func newNoisy(images samples.Dataset, seed uint64) (samples.Dataset, error) {
	pixels := images.Fields()[0].Shape
	side := int(math.Sqrt(float64(pixels[0])))
	if side*side != pixels[0] {
		return nil, fmt.Errorf("%w: %d pixels do not form a square image", samples.ErrShape, pixels[0])
	}
	return &noisy{images, []int{side, side, 1}, seed}, nil
}

func (d *noisy) Fields() []samples.Field {
	return []samples.Field{{Name: "x", Shape: d.shape}, {Name: "y", Shape: d.shape}}
}

// At draws the noise from the sample's index, so that it is the same each time.
func (d *noisy) At(i int) (samples.Sample, error) {
	image, err := d.Dataset.At(i)
	if err != nil {
		return nil, err
	}
	x := tensorops.NewArray(tensorops.Float32, d.shape)
	random := rand.New(rand.NewPCG(d.seed, uint64(i)))
	for k, v := range image[0].Float {
		x.Float[k] = v + float32(noise*random.NormFloat64())
	}
	return samples.Sample{x, {Shape: d.shape, Float: image[0].Float}}, nil
}
