package data

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// Records are token sequences on which a model is trained one by one: documents of which only a
// part is learned.
type Records struct {
	ids    []int32
	learn  []bool // for each id: it is a target
	starts []int64
}

// Add appends a record: its ids, and which of them are learned.
func (r *Records) Add(ids []int32, learn []bool) {
	r.starts = append(r.starts, int64(len(r.ids)))
	r.ids, r.learn = append(r.ids, ids...), append(r.learn, learn...)
}

// Len returns the number of records.
func (r *Records) Len() int { return len(r.starts) }

// Tokens returns the number of ids in all records.
func (r *Records) Tokens() int64 { return int64(len(r.ids)) }

// Targets returns the number of learned ids.
func (r *Records) Targets() (n int64) {
	for i := range r.starts {
		from, to := r.span(i)
		for _, learn := range r.learn[from+1 : to] {
			if learn {
				n++
			}
		}
	}
	return n
}

func (r *Records) span(i int) (from, to int64) {
	if i+1 < len(r.starts) {
		return r.starts[i], r.starts[i+1]
	}
	return r.starts[i], int64(len(r.ids))
}

// Positions returns how many tokens of a record have a successor.
func (r *Records) Positions(i int) int {
	from, to := r.span(i)
	return int(to-from) - 1
}

// Fill reads a record: its Positions, and as targets the tokens after them, or Masked for those
// that are not learned.
func (r *Records) Fill(i int, tokens, targets []int32) error {
	from, to := r.span(i)
	if n := int(to-from) - 1; len(tokens) != n || len(targets) != n {
		return fmt.Errorf("got room for %d tokens and %d targets of record %d, which has %d positions", len(tokens), len(targets), i, n)
	}
	copy(tokens, r.ids[from:to-1])
	copy(targets, r.ids[from+1:to])
	for k, learn := range r.learn[from+1 : to] {
		if !learn {
			targets[k] = Masked
		}
	}
	return nil
}

// SplitDocuments chooses which of n documents are for validation: valFraction of them, at least
// one. The choice depends only on n, so all runs on the same documents validate on the same ones.
func SplitDocuments(n int, valFraction float64) (val []bool, err error) {
	if inside := valFraction > 0 && valFraction < 1; !inside {
		return nil, fmt.Errorf("the validation fraction is %g: it must be above 0 and below 1", valFraction)
	}
	take := max(1, int(float64(n)*valFraction))
	if take >= n {
		return nil, fmt.Errorf("%w: a validation fraction of %g of %d documents leaves %d for training", ErrTooShort, valFraction, n, n-take)
	}
	val = make([]bool, n)
	key := rng.NewKey(0, rng.StringStream("validation documents")) // not a run's seed
	for i := range take {
		val[rng.Permute(key, 0, uint64(i), uint64(n))] = true
	}
	return val, nil
}

// Order returns the index of the record for a sequence of the run. Each of the n records comes once
// an epoch, in an order drawn for it.
func Order(seed uint64, sequence int64, n int) int {
	epoch, place := uint64(sequence)/uint64(n), uint64(sequence)%uint64(n)
	return int(rng.Permute(rng.NewKey(seed, rng.StringStream("epoch order")), epoch, place, uint64(n)))
}

// NewTokens makes a corpus from token ids in memory.
func NewTokens(ids []int32) Corpus { return inMemory[int32](ids) }
