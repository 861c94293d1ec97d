package data

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// The ways to separate the validation text from the training text.
const (
	// Blocks takes validation text in blocks spread over the corpus, so that it resembles the
	// training text.
	Blocks = "blocks"
	// Tail takes the end of the corpus.
	Tail = "tail"
)

// Limits of a split in blocks: the number of blocks, and their smallest number of tokens. A short
// text has fewer blocks. Nothing is lost between a block and the text around it: a training window
// may span the place of a block, as it may span the end of a file.
const (
	blocksMax   = 64
	blockTokens = 4096
)

// Split divides a corpus in two: valFraction of its ids is for validation, in one of the ways
// above. The places of the parts depend only on the corpus' length and valFraction. Both parts read
// from c, which the caller closes; their own Close does nothing.
func Split(c Corpus, how string, valFraction float64) (train, val Corpus, err error) {
	if inside := valFraction > 0 && valFraction < 1; !inside { // also refuses NaN
		return nil, nil, fmt.Errorf("the validation fraction is %g: it must be above 0 and below 1", valFraction)
	}
	n := c.Len()
	cut := int64(float64(n) * (1 - valFraction))
	if cut < 1 || cut >= n {
		return nil, nil,
			fmt.Errorf("%w: a validation fraction of %g of %d tokens leaves %d for training and %d for validation: use more text or another val_fraction",
				ErrTooShort, valFraction, n, cut, n-cut)
	}
	var taken []Piece
	switch how {
	case Blocks:
		taken = blocks(n, n-cut)
	case Tail:
		taken = []Piece{{cut, n - cut}}
	default:
		return nil, nil, fmt.Errorf("the split %q is neither %q nor %q", how, Blocks, Tail)
	}
	return newPart(c, around(taken, n)), newPart(c, taken), nil
}

// blocks draws the places of the blocks: one in each of as many equal stretches of the n ids, with
// valLen ids in total.
func blocks(n, valLen int64) []Piece {
	key := rng.NewKey(0, rng.StringStream("validation blocks")) // not a run's seed: every run is validated on the same text
	count := min(max(valLen/blockTokens, 1), blocksMax)
	var all []Piece
	for i := range count {
		begin := share(n-valLen, i, count) + share(valLen, i, count)
		size := share(valLen, i+1, count) - share(valLen, i, count)
		free := share(n-valLen, i+1, count) - share(n-valLen, i, count)
		all = append(all, Piece{begin + int64(rng.Intn(key, uint64(n), uint64(i), uint64(free+1))), size})
	}
	return all
}

// share returns i·n/count, rounded down, for i up to count; the product may overflow an int64.
func share(n, i, count int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(i))
	quotient, _ := bits.Div64(high, low, uint64(count))
	return int64(quotient)
}

// around returns the pieces of n ids that are not taken.
func around(taken []Piece, n int64) []Piece {
	var rest []Piece
	at := int64(0)
	for _, p := range append(slices.Clone(taken), Piece{n, 0}) {
		if p.Off > at {
			rest = append(rest, Piece{at, p.Off - at})
		}
		at = p.Off + p.Len
	}
	return rest
}

// Piece is a range of Len consecutive ids starting at position Off.
type Piece struct{ Off, Len int64 }

// Pieces returns the ranges of text of which a corpus consists, one after the other: a part taken
// from several places of another corpus has several.
func Pieces(c Corpus) []Piece {
	p, ok := c.(*part)
	if !ok {
		return []Piece{{0, c.Len()}}
	}
	var all []Piece
	for i, of := range p.pieces {
		all = append(all, Piece{p.starts[i], of.Len})
	}
	return all
}

// part joins pieces of a corpus.
type part struct {
	of     Corpus
	pieces []Piece // pieces of the corpus
	starts []int64 // start of each piece in the part
	n      int64
}

func newPart(of Corpus, pieces []Piece) *part {
	p := &part{of: of, pieces: pieces}
	for _, piece := range pieces {
		p.starts = append(p.starts, p.n)
		p.n += piece.Len
	}
	return p
}

func (p *part) Len() int64   { return p.n }
func (p *part) Close() error { return nil }

func (p *part) Read(dst []int32, off int64) error {
	if err := checkRange(len(dst), off, p.n); err != nil {
		return err
	}
	i := sort.Search(len(p.starts), func(i int) bool { return p.starts[i] > off }) - 1
	for len(dst) > 0 {
		piece, skip := p.pieces[i], off-p.starts[i]
		n := int(min(int64(len(dst)), piece.Len-skip))
		if err := p.of.Read(dst[:n], piece.Off+skip); err != nil {
			return err
		}
		dst, off, i = dst[n:], off+int64(n), i+1
	}
	return nil
}
