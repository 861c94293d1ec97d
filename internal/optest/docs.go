package optest

import (
	"math/rand/v2"

	"github.com/troupe-ml/troupe/tensorops"
)

// docs says how documents share a sequence.
type docs uint8

const (
	noDocs     docs = iota // there are no starts
	oneDoc                 // one document, which starts before the first key
	tokenDocs              // documents of one token
	middleDoc              // the second of two starts in the middle of the queries
	shortDocs              // of 1 to 12 tokens
	longDocs               // of 40 to 100 tokens
	anyStarts              // each query has some start, before the first key, among the keys or behind the last
	hiddenKeys             // every key of the later queries is hidden
)

func (d docs) String() string {
	return [...]string{"whole", "one", "tokens", "middle", "short", "long", "any", "hidden"}[d]
}

// starts makes the starts of queries that have the positions from offset on, where the first key has position 0.
func (d docs) starts(b *builder, batch, queries, keys, offset int) tensorops.Tensor {
	if d == noDocs {
		return tensorops.Tensor{}
	}
	key := b.key()
	r := rand.New(rand.NewPCG(uint64(key.K0), uint64(key.K1)))
	starts := make([]int32, 0, batch*queries)
	for range batch {
		start, next := 0, 0 // of the document, and of the one behind it
		for position := range offset + queries {
			switch {
			case position < next:
			case d == shortDocs:
				start, next = position, position+1+r.IntN(12)
			case d == longDocs:
				start, next = position, position+40+r.IntN(61)
			}
			query := position - offset
			switch {
			case d == oneDoc:
				start = -2
			case d == tokenDocs:
				start = position
			case d == anyStarts:
				start = r.IntN(keys+13) - 6
			case d == middleDoc && query >= queries/2:
				start = offset + queries/2
			case d == hiddenKeys && query >= queries/3:
				start = max(keys, position+1) + query%2
			}
			if query >= 0 {
				starts = append(starts, int32(start))
			}
		}
	}
	return b.ints(starts, batch, queries)
}
