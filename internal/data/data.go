// Package data turns files into token ids, and token ids into the windows that a
// model is trained and validated on.
//
// Files finds the files, and Exclude those among them that others name too.
// ReadText, Text.Encode, and OpenIDs make a Corpus of them: a text encoded by a
// tokenizer (on all cores: EncodeAll), or ids that another program has written; an Identity says by their
// content whether they are the same files as before. Split, Epochs, ValWindows and
// Sequential say which ids a step reads, as pure functions of numbers, so that a
// resumed run, or one under another layout, reads the same; Fill reads them.
//
// The package imports the standard library and of Troupe's internal packages hostmem,
// which maps files, sysinfo, and rng, the random numbers. It must never know a tokenizer (an Encoder is all
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
