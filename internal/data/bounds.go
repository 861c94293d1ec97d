package data

import (
	"fmt"
	"sort"
)

// Bounds are the places in a corpus at which its documents start, in ascending order. A window of the corpus
// may have parts of several documents; attention stays inside each.
type Bounds []int64

// after returns the index of the first document that starts after a place.
func (b Bounds) after(place int64) int {
	return sort.Search(len(b), func(i int) bool { return b[i] > place })
}

// Mask removes the targets of a window that starts at a place of the corpus which are the first tokens of
// documents: nothing before a document predicts it.
func (b Bounds) Mask(place int64, targets []int32) {
	for i := b.after(place); i < len(b) && b[i]-place <= int64(len(targets)); i++ {
		targets[b[i]-place-1] = Masked
	}
}

// Starts fills in, for each position of a window that starts at a place of the corpus, the position in the
// window at which its document starts; 0 if the document starts before the window.
func (b Bounds) Starts(place int64, starts []int32) {
	next, start := b.after(place), int32(0)
	for k := range starts {
		for next < len(b) && b[next]-place <= int64(k) {
			start, next = int32(b[next]-place), next+1
		}
		starts[k] = start
	}
}

// Check returns an error unless the places are ascending and inside a corpus of a length.
func (b Bounds) Check(length int64) error {
	for i, at := range b {
		if at < 0 || at >= length || i > 0 && at <= b[i-1] {
			return fmt.Errorf("document %d cannot start at position %d of %d ids", i+1, at, length)
		}
	}
	return nil
}
