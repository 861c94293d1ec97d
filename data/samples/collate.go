package samples

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// Batch makes a microbatch from samples of a dataset, with the dataset's own Batch if it is a
// Batcher, otherwise with Collate.
func Batch(d Dataset, samples []Sample) ([]tensorops.Array, error) {
	b, ok := find[Batcher](d)
	if !ok {
		return Collate(d.Fields(), samples)
	}
	batch, err := b.Batch(samples)
	if err != nil {
		return nil, fmt.Errorf("a microbatch of %d samples: %w", len(samples), err)
	}
	return batch, checkBatch(d.Fields(), batch, len(samples))
}

// checkBatch checks the result of a Batcher.
func checkBatch(fields []Field, batch []tensorops.Array, count int) error {
	if len(batch) != len(fields) {
		return fmt.Errorf("%w: Batch returned %d arrays for %d fields", ErrShape, len(batch), len(fields))
	}
	for i, f := range fields {
		a := batch[i]
		if err := a.Check(); err != nil {
			return fmt.Errorf("Batch, field %s: %w", shown(f.Name), err)
		}
		if a.DType() != f.DType || len(a.Shape) == 0 || a.Shape[0] != count {
			return fmt.Errorf("%w: Batch returned an array of shape %v and type %v for field %s of %d samples, which is %v: the first dimension must be the number of samples",
				ErrShape, a.Shape, a.DType(), shown(f.Name), count, f.DType)
		}
	}
	return nil
}

// Collate stacks the fields of samples: B samples of shape [3 4] become one array of shape [B 3 4].
// Each field must have the same shape in all samples; otherwise the error is ErrShape.
func Collate(fields []Field, samples []Sample) ([]tensorops.Array, error) {
	if len(samples) == 0 {
		return nil, fmt.Errorf("%w: the microbatch has no samples", ErrShape)
	}
	for i, s := range samples {
		if err := CheckSample(fields, s); err != nil {
			return nil, fmt.Errorf("sample %d of a microbatch of %d: %w", i, len(samples), err)
		}
	}
	batch := make([]tensorops.Array, len(fields))
	for i, f := range fields {
		first := samples[0][i].Shape
		for j, s := range samples {
			if !slices.Equal(s[i].Shape, first) {
				return nil,
					fmt.Errorf("%w: in a microbatch of %d samples, field %s has the shape %v in sample 0 and %v in sample %d: set batch.microbatch = 1, or implement Batch on the dataset to pad them",
						ErrShape, len(samples), shown(f.Name), first, s[i].Shape, j)
			}
		}
		batch[i] = stack(f.DType, first, samples, i)
	}
	return batch, nil
}

func stack(dtype tensorops.DType, shape []int, samples []Sample, field int) tensorops.Array {
	a := tensorops.Array{Shape: append([]int{len(samples)}, shape...)}
	n := len(samples) * samples[0][field].Len()
	switch dtype {
	case tensorops.Int32:
		a.Int = make([]int32, 0, n)
	case tensorops.Float64:
		a.Double = make([]float64, 0, n)
	default:
		a.Float = make([]float32, 0, n)
	}
	for _, s := range samples {
		a.Int = append(a.Int, s[field].Int...)
		a.Double = append(a.Double, s[field].Double...)
		a.Float = append(a.Float, s[field].Float...)
	}
	return a
}
