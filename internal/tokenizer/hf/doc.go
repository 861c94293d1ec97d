// Package hf encodes and decodes text exactly as the tokenizers library does with a tokenizer.json.
// It finds added tokens in a text. The text between them is normalized, split into words and
// encoded by a model (BPE, Unigram or WordPiece), and a post-processor adds tokens.
//
// Parse makes a Tokenizer from a file. A part that can't be computed exactly as in the library, and
// a setting that the library does not know, is an ErrUnsupported that names it. The classes of
// characters and graphemes are the library's own (unicode.bin and graphemes.bin, which
// testdata/unicode.py and graphemes.py extract from it), since its version of Unicode differs from
// Go's. Invalid UTF-8 becomes U+FFFD, as with Python's errors="replace".
//
// A Tokenizer is safe for concurrent use. The package must never know where a text comes from, or
// what a model does with ids.
package hf
