package samples

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/data"
)

// Subset returns some of a dataset's samples, in the order of the indices.
func Subset(d Dataset, indices []int) (Dataset, error) {
	for at, i := range indices {
		if i < 0 || i >= d.Len() {
			return nil, fmt.Errorf("%w: entry %d of a subset is sample %d, but the dataset has %d samples", ErrOptions, at, i, d.Len())
		}
	}
	return &subset{d, slices.Clone(indices)}, nil
}

type subset struct {
	of      Dataset
	indices []int
}

func (s *subset) Fields() []Field { return s.of.Fields() }
func (s *subset) Len() int        { return len(s.indices) }
func (s *subset) whole() Dataset  { return s.of }

func (s *subset) At(i int) (Sample, error) {
	if err := inRange(i, len(s.indices)); err != nil {
		return nil, err
	}
	return s.of.At(s.indices[i])
}

func inRange(i, n int) error {
	if i < 0 || i >= n {
		return fmt.Errorf("sample %d was requested, but there are %d", i, n)
	}
	return nil
}

// Split divides a dataset: a permutation chooses valFraction of its samples for validation. The
// choice depends only on the seed and the number of samples. Both parts keep the order of the
// whole.
func Split(d Dataset, valFraction float64, seed uint64) (train, val Dataset, err error) {
	if inside := valFraction > 0 && valFraction < 1; !inside { // also refuses NaN
		return nil, nil, fmt.Errorf("%w: the validation fraction is %g: it must be above 0 and below 1", ErrOptions, valFraction)
	}
	n := d.Len()
	cut := int(float64(n) * (1 - valFraction))
	if cut < 1 || cut >= n {
		return nil, nil,
			fmt.Errorf("%w: a validation fraction of %g of %d samples leaves %d for training and %d for validation: use more data or another val_fraction",
				data.ErrTooShort, valFraction, n, cut, n-cut)
	}
	key := rng.NewKey(seed, rng.StringStream("validation samples"))
	chosen := make([]bool, n)
	for i := range n - cut {
		chosen[rng.Permute(key, 0, uint64(i), uint64(n))] = true
	}
	parts := [2][]int{make([]int, 0, cut), make([]int, 0, n-cut)}
	for i, isVal := range chosen {
		if isVal {
			parts[1] = append(parts[1], i)
		} else {
			parts[0] = append(parts[0], i)
		}
	}
	return &subset{d, parts[0]}, &subset{d, parts[1]}, nil
}
