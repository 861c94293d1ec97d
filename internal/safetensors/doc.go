// Package safetensors reads and writes the safetensors format: the file in which
// model weights are exchanged.
//
// A file is eight bytes (the header's length, little-endian), the header (a JSON
// object: for each tensor its dtype, its shape, and where its bytes lie in the
// data), and the data. Open maps a file into memory and checks the whole header
// against the file before it hands out a byte: every size is the product of
// dtype and shape, and the tensors cover the data without hole or overlap.
// Nothing is allocated on the word of a number that has not been checked; the
// bounds stand in limits.go.
//
//	f, err := safetensors.Open("model.safetensors")
//	…
//	defer f.Close()
//	for _, name := range f.Names() {
//		data, err := f.Bytes(name) // valid until Close
//		…
//	}
//
// Write takes tensors whose bytes are in memory or are produced on the way out,
// so that large weights need no second copy. What Write accepts, Open accepts:
// the writer decodes its own header before the first byte goes out.
//
// The package must never know what a tensor is for, nor which files make a checkpoint.
package safetensors
