// Package data turns files into token ids, and token ids into the windows on which a model is
// trained and validated.
//
// Files finds the files, and Exclude those of them that others name, too. ReadText, Text.Encode and
// OpenIDs make a Corpus from files: text encoded by a tokenizer (on all cores; see EncodeAll), or
// ids that another program has written. An Identity tells, from their content, whether they are the
// same files as before. Split, Epochs, ValWindows and Sequential determine which ids a step reads.
// They are pure functions of numbers, so that a resumed run, or one with another layout, reads the
// same ids. Fill reads them.
//
// FindDataset finds the splits of a folder as Hugging Face's hub lays it out. Rows reads files of JSON lines or
// Parquet row by row, and a Log keeps the ids of a stream of documents on disk.
//
// The package imports the standard library and few internal packages of Troupe: hostmem, which
// maps files, sysinfo, parquet, and rng, the random numbers. It must never know a tokenizer (an Encoder is
// all it needs), a model, or the actors that it feeds.
package data

import (
	"errors"
	"fmt"
)

var (
	// ErrEmpty: files have no content.
	ErrEmpty = errors.New("no data")
	// ErrTooShort: data does not fill one window.
	ErrTooShort = errors.New("too little data")
	// ErrVocab: an id is outside the vocabulary.
	ErrVocab = errors.New("token outside the vocabulary")
)

// Corpus is a sequence of token ids.
type Corpus interface {
	// Len returns the number of ids.
	Len() int64
	// Read fills dst with the ids starting at off; they must lie within the corpus. It is safe for
	// concurrent use.
	Read(dst []int32, off int64) error
	// Close frees the corpus. No Read may be in progress.
	Close() error
}

// checkRange returns an error unless n ids starting at off lie within a corpus.
func checkRange(n int, off, length int64) error {
	if off < 0 || off > length || int64(n) > length-off {
		return fmt.Errorf("cannot read %d ids starting at position %d: there are only %d", n, off, length)
	}
	return nil
}
