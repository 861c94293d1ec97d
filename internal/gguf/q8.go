package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

// Q8_0 stores blocks of 32 numbers: the largest of their magnitudes / 127 as a half, and each number
// divided by it as an int8 (quantize_row_q8_0_ref of ggml). Files are equal to those of ggml bit by bit,
// so each operation is one in float32.

const infiniteHalf = 0x7c00

// appendQ8 appends the blocks of numbers; wrong is the index of a number whose block can't be stored, or
// -1.
func appendQ8(dst []byte, values []float32) (out []byte, wrong int) {
	for at := 0; at < len(values); at += BlockQ8 {
		block := values[at : at+BlockQ8]
		var most float32
		for i, v := range block {
			if v-v != 0 {
				return dst, at + i
			}
			most = max(most, v, -v)
		}
		scale := most / 127
		half := safetensors.Half(scale)
		if half == infiniteHalf {
			return dst, at
		}
		var inverse float32
		if scale != 0 { // also if its half is 0, as in ggml
			inverse = 1 / scale
		}
		if inverse > math.MaxFloat32 { // C does not define the bits of such a block; all of its numbers become 0
			inverse = 0
		}
		dst = binary.LittleEndian.AppendUint16(dst, half)
		for _, v := range block {
			dst = append(dst, byte(int8(math.Round(float64(float32(v*inverse)))))) // halves away from zero, like C's roundf
		}
	}
	return dst, -1
}

// decodeQ8 returns the numbers of blocks.
func decodeQ8(data []byte) []float32 {
	out := make([]float32, 0, len(data)/blockBytesQ8*BlockQ8)
	for at := 0; at < len(data); at += blockBytesQ8 {
		scale := safetensors.HalfValue(binary.LittleEndian.Uint16(data[at:]))
		for _, b := range data[at+2 : at+blockBytesQ8] {
			out = append(out, float32(int8(b))*scale)
		}
	}
	return out
}

// Converted returns a tensor of a type from the bytes of an F32, F16 or BF16 tensor, converted piece by
// piece during the write. data returns these bytes; it is called once in each write. F16 and BF16 are
// rounded to the nearest number, ties to even.
func Converted(name string, to Type, shape []int, from string, data func() ([]byte, error)) Tensor {
	return Tensor{Name: name, Type: to, Shape: shape, Stream: func(w io.Writer) error {
		b, err := data()
		if err != nil {
			return err
		}
		if to == Q8_0 {
			return writeQ8(w, from, b)
		}
		t, err := safetensors.Converted(name, to.String(), shape, from, b)
		if err != nil {
			return err
		}
		_, err = t.WriteTo(w)
		return err
	}}
}

func writeQ8(w io.Writer, from string, data []byte) error {
	width := 2
	if from == "F32" {
		width = 4
	}
	const chunk = 512 * BlockQ8
	values, out := make([]float32, chunk), make([]byte, 0, chunk/BlockQ8*blockBytesQ8)
	for at := 0; at < len(data); at += chunk * width {
		piece := data[at:min(at+chunk*width, len(data))]
		part := values[:len(piece)/width]
		if err := safetensors.DecodeFloat32(part, from, piece); err != nil {
			return err
		}
		var wrong int
		if out, wrong = appendQ8(out[:0], part); wrong >= 0 {
			return fmt.Errorf("element %d is %g, which Q8_0 cannot store", at/width+wrong, part[wrong])
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	return nil
}
