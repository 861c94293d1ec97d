package data

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// Records are token sequences on which a model is trained one by one: documents of which only a
// part is learned. Their ids are where those of the documents are.
type Records struct {
	of      *Documents
	list    []record
	tokens  int64
	targets int64
}

type record struct {
	at int64 // its first id among those of all documents
	n  int32 // its ids
	// good says that it is a good answer: see Document.
	good bool
}

// NewRecords returns no records of documents yet.
func NewRecords(of *Documents) *Records { return &Records{of: of} }

// Add appends the first n ids of document i.
func (r *Records) Add(i, n int) {
	r.list = append(r.list, record{r.of.list[i].at, int32(n), r.of.list[i].good})
	r.tokens, r.targets = r.tokens+int64(n), r.targets+r.of.Targets(i, n)
}

// Len returns the number of records.
func (r *Records) Len() int { return len(r.list) }

// Tokens returns the number of ids in all records.
func (r *Records) Tokens() int64 { return r.tokens }

// Targets returns the number of learned ids.
func (r *Records) Targets() int64 { return r.targets }

// Good reports whether a record is a good answer.
func (r *Records) Good(i int) bool { return r.list[i].good }

// Positions returns how many tokens of a record have a successor.
func (r *Records) Positions(i int) int { return int(r.list[i].n) - 1 }

// Fill reads a record: its Positions, and as targets the tokens after them, or Masked for those
// that are not learned.
func (r *Records) Fill(i int, tokens, targets []int32) error {
	of := r.list[i]
	n := int(of.n) - 1
	if len(tokens) != n || len(targets) != n {
		return fmt.Errorf("got room for %d tokens and %d targets of record %d, which has %d positions", len(tokens), len(targets), i, n)
	}
	ids := make([]int32, of.n)
	if err := r.of.ids.Read(ids, of.at); err != nil {
		return err
	}
	copy(tokens, ids)
	copy(targets, ids[1:])
	for k := range targets {
		if !r.of.learn.at(of.at + int64(k) + 1) {
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
