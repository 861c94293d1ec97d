package samples

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/data"
)

// Order determines which sample comes when: each sample once an epoch, in an order that is drawn
// for each epoch. It depends only on the seed and the sample's number in the run, so a
// position has no state that could be lost.
type Order struct {
	key rng.Key
	n   uint64
}

// NewOrder returns the order of n samples; n must be above 0.
func NewOrder(seed uint64, n int64) Order {
	return Order{rng.NewKey(seed, rng.StringStream("sample order")), uint64(max(n, 1))}
}

// Sample returns, for a sample's number in the run, its epoch and its index in the data. All count
// from 0.
func (o Order) Sample(number int64) (epoch, index int64) {
	round, place := uint64(number)/o.n, uint64(number)%o.n
	return int64(round), int64(rng.Permute(o.key, round, place, o.n))
}

// Source gives a run its samples by number, counted from 0.
type Source interface {
	Fields() []Field
	Sample(number int64) (Sample, error)
}

// NewSource returns a dataset's samples in the order that a seed determines. A dataset without
// samples is an error.
func NewSource(d Dataset, seed uint64) (*DatasetSource, error) {
	if err := CheckFields(d.Fields()); err != nil {
		return nil, err
	}
	if d.Len() < 1 {
		return nil, fmt.Errorf("%w: the dataset has no samples", data.ErrEmpty)
	}
	return &DatasetSource{d, NewOrder(seed, int64(d.Len()))}, nil
}

// DatasetSource is the Source of a dataset. It is safe for concurrent use.
type DatasetSource struct {
	data  Dataset
	order Order
}

// Fields describes the samples.
func (s *DatasetSource) Fields() []Field { return s.data.Fields() }

// Sample returns a checked sample of the run.
func (s *DatasetSource) Sample(number int64) (Sample, error) {
	if number < 0 {
		return nil, fmt.Errorf("%w: a run has no sample %d", ErrPosition, number)
	}
	_, index := s.order.Sample(number)
	sample, err := At(s.data, int(index))
	if err != nil {
		return nil, fmt.Errorf("sample %d of the run is %w", number, err)
	}
	return sample, nil
}
