// Package safetensors reads and writes the safetensors format, the file format in which model
// weights are exchanged.
//
// A file has eight bytes (the header's length, little-endian), the header (a JSON object with the
// dtype, the shape and the place of each tensor), and the data. Open maps a file into memory.
// Before it returns any byte, it checks the whole header against the file: every size is the
// product of dtype and shape, and the tensors cover the data without holes or overlaps. Nothing is
// allocated based on an unchecked number; the limits are in limits.go.
//
//	f, err := safetensors.Open("model.safetensors")
//	…
//	defer f.Close()
//	for _, name := range f.Names() {
//		data, err := f.Bytes(name) // valid until Close
//		…
//	}
//
// Write takes tensors whose bytes are in memory or are produced during the write, so that large
// weights need no second copy. Open accepts everything that Write accepts: the writer decodes its
// own header before it writes the first byte.
//
// The package must never know what a tensor is for, nor which files make a checkpoint.
package safetensors
