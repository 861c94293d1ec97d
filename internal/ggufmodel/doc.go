// Package ggufmodel translates models between the files of Hugging Face and GGUF files as llama.cpp
// reads them.
//
//	Write   config.json, the tokenizer's files and tensors → entries and tensors of a GGUF file
//	Open    a GGUF file → the same files and tensors, as a model's folder would have them
//
// A family is a row of architectures (architecture.go) and its names of tensors (names.go). The keys and
// names, and which rows llama.cpp wants permuted, transposed or increased by one, are those of
// convert_hf_to_gguf.py in llama.cpp and of constants.py in the Python package gguf. What llama.cpp would
// compute differently is refused by the name of its key, or a warning says so if only some texts are
// affected.
//
// The tokenizer is stored as llama.cpp expects it: byte-level BPE with the name of a known pre-tokenizer,
// which pre.go finds by its pattern, or SentencePiece's BPE with a score for each token.
//
// OpenAt opens a GGUF file or, for any other path, a checkpoint; it is what model.from and --from use.
//
// The package must never know how a model computes or trains: config.json is the only description of a
// model that it reads and writes.
package ggufmodel
