// Package gguf reads and writes GGUF, the file format of models in llama.cpp and Ollama.
//
// A file has a header (magic, version, counts), entries (a key, a type and a value each), the name,
// shape, type and place of each tensor, padding, and the data. Numbers are little-endian. The format
// is described in docs/gguf.md of the ggml project; versions 2 and 3 are read, version 3 is written.
// Of the many types of tensors, Troupe knows F32, F16, BF16 and Q8_0.
//
// Open maps a file into memory. Before it returns, it checks the whole header against the file: every
// count before something is allocated for it, and every tensor's size and place. The limits are in
// limits.go.
//
//	f, err := gguf.Open("model.gguf")
//	…
//	defer f.Close()
//	arch, ok := f.Value("general.architecture")
//	values, err := f.Float32s("token_embd.weight")
//
// Prepare lays out a file and checks it with the reader, before a byte is written.
//
// The package must never know what a key or a tensor means; package ggufmodel does.
package gguf
