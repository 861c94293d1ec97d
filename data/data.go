// Package data turns files into token ids, and token ids into the windows that a
// model is trained and validated on.
//
// Files finds the files. ReadText, Text.Encode, and OpenUint16 make a Corpus of
// them: a text encoded by a tokenizer, or ids that another program has written.
// Split, TrainWindow, ValWindows and Sequential say which ids a step reads, as
// pure functions of numbers, so that a resumed run, or one under another layout,
// reads the same; Fill reads them.
//
// The package imports the standard library, golang.org/x/sys for memory-mapping,
// and Troupe's random numbers. It must never know a tokenizer (an Encoder is all
// it needs), a model, or the actors that it feeds.
package data

import (
	"errors"
	"fmt"
)

var (
	// ErrEmpty is in the chain of an error about files without any content.
	ErrEmpty = errors.New("no data")
	// ErrTooShort is in the chain of an error about data that doesn't fill one
	// window.
	ErrTooShort = errors.New("too little data")
	// ErrVocab is in the chain of an error about an id outside the vocabulary.
	ErrVocab = errors.New("token outside the vocabulary")
)

// Corpus is a sequence of token ids.
type Corpus interface {
	// Len is the number of ids.
	Len() int64
	// Read fills dst with the ids from off on; they must lie within the corpus.
	// It is safe for concurrent use.
	Read(dst []int32, off int64) error
	// Close frees the corpus, once nobody reads it any more.
	Close() error
}

// checkRange returns an error unless the n ids from off on lie within a corpus.
func checkRange(n int, off, length int64) error {
	if off < 0 || off > length || int64(n) > length-off {
		return fmt.Errorf("reading %d ids from position %d on, but there are %d", n, off, length)
	}
	return nil
}

// Split cuts a corpus in two: the last valFraction of its ids is for validation.
// Both parts read from c, which stays the caller's to close; their own Close
// does nothing.
func Split(c Corpus, valFraction float64) (train, val Corpus, err error) {
	if inside := valFraction > 0 && valFraction < 1; !inside { // NaN isn't either
		return nil, nil, fmt.Errorf("the validation part must be more than 0 and less than 1, not %g", valFraction)
	}
	cut := int64(float64(c.Len()) * (1 - valFraction))
	if cut < 1 || cut >= c.Len() {
		return nil, nil, fmt.Errorf("%w: a validation part of %g of %d tokens leaves %d for training and %d for validation: use more text or another val_fraction",
			ErrTooShort, valFraction, c.Len(), cut, c.Len()-cut)
	}
	return part{c, 0, cut}, part{c, cut, c.Len() - cut}, nil
}

// part is the n ids of a corpus from position first on.
type part struct {
	of       Corpus
	first, n int64
}

func (p part) Len() int64   { return p.n }
func (p part) Close() error { return nil }

func (p part) Read(dst []int32, off int64) error {
	if err := checkRange(len(dst), off, p.n); err != nil {
		return err
	}
	return p.of.Read(dst, p.first+off)
}
