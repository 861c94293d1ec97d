package samples

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/data"
)

// Order says which sample comes when: each once an epoch, in an order that is drawn for
// every epoch. It is a function of the seed and of the sample's number in the run alone, so
// that a position has no state that could be lost.
type Order struct {
	key rng.Key
	n   uint64
}

// NewOrder is the order of n samples; n must be above 0.
func NewOrder(seed uint64, n int64) Order {
	return Order{rng.NewKey(seed, rng.StringStream("sample order")), uint64(max(n, 1))}
}

// Sample returns the epoch of a sample of the run, both counted from 0, and which of the
// data's samples it is.
func (o Order) Sample(number int64) (epoch, index int64) {
	round, place := uint64(number)/o.n, uint64(number)%o.n
	return int64(round), int64(rng.Permute(o.key, round, place, o.n))
}

// Source gives a run its samples by their numbers, which count from 0.
type Source interface {
	Fields() []Field
	Sample(number int64) (Sample, error)
}

// NewSource gives a dataset's samples in the order that a seed draws.
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

// Sample returns a sample of the run, checked.
func (s *DatasetSource) Sample(number int64) (Sample, error) {
	if number < 0 {
		return nil, fmt.Errorf("%w: sample %d of a run", ErrPosition, number)
	}
	_, index := s.order.Sample(number)
	sample, err := At(s.data, int(index))
	if err != nil {
		return nil, fmt.Errorf("sample %d of the run is %w", number, err)
	}
	return sample, nil
}
