// Package hf encodes and decodes text exactly as the tokenizers library does it by a
// tokenizer.json: added tokens are found in a text, what is between them is normalized,
// split into words and encoded by BPE, and a post-processor adds tokens.
//
// Parse makes a Tokenizer of a file; what it can't do as the library does is an
// ErrUnsupported that names the part. The classes of characters are the library's own
// (unicode.bin, which testdata/unicode.py asks of it): it knows other versions of Unicode
// than Go. Invalid UTF-8 becomes U+FFFD as Python's errors="replace" has it.
//
// A Tokenizer is safe for concurrent use. The package must never know where a text comes from, or
// what a model does with ids.
package hf
