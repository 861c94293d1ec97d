package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Converted returns a tensor of type F32, F16 or BF16 from the bytes of a tensor of another of
// these types. It is converted piece by piece during the write, to the nearest number, ties to
// even. A finite number beyond F16's range is an error.
func Converted(name, to string, shape []int, from string, data []byte) (Tensor, error) {
	width, err := float32Width(from)
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	if _, err := float32Width(to); err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	t := Tensor{Name: name, DType: to, Shape: shape}
	if from == to {
		t.Data = data
		return t, nil
	}
	t.Stream = func(w io.Writer) error {
		const chunk = 16 << 10
		values, out := make([]float32, chunk), make([]byte, 0, 4*chunk)
		for at := 0; at < len(data); at += chunk * width {
			piece := data[at:min(at+chunk*width, len(data))]
			part := values[:len(piece)/width]
			if err := DecodeFloat32(part, from, piece); err != nil {
				return err
			}
			var wrong int
			if out, wrong = appendAs(out[:0], to, part); wrong >= 0 {
				return fmt.Errorf("element %d is %g, but the largest number in F16 is 65504", at/width+wrong, part[wrong])
			}
			if _, err := w.Write(out); err != nil {
				return err
			}
		}
		return nil
	}
	return t, nil
}

// appendAs encodes values; wrong is the index of a value outside the range of the type, or -1.
func appendAs(dst []byte, dtype string, values []float32) (out []byte, wrong int) {
	switch dtype {
	case "F32":
		return appendFloat32(dst, values), -1
	case "BF16":
		for _, v := range values {
			dst = binary.LittleEndian.AppendUint16(dst, narrowBF16(v))
		}
		return dst, -1
	}
	for i, v := range values {
		h := narrowHalf(v)
		if h&0x7fff == 0x7c00 && !math.IsInf(float64(v), 0) {
			return dst, i
		}
		dst = binary.LittleEndian.AppendUint16(dst, h)
	}
	return dst, -1
}

// narrowBF16 rounds to bfloat16.
func narrowBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40 // still a NaN
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Half rounds to an IEEE half, the number of type F16: infinity beyond its range.
func Half(v float32) uint16 { return narrowHalf(v) }

// HalfValue returns the value of an IEEE half.
func HalfValue(half uint16) float32 { return widenHalf(half) }

// narrowHalf rounds to an IEEE half.
func narrowHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 31 << 15)
	size := math.Float32frombits(bits &^ (1 << 31))
	switch {
	case v != v:
		return sign | 0x7e00
	case size >= 65520: // halfway to the next number
		return sign | 0x7c00
	case size < 0x1p-14: // subnormal: whole multiples of 2^-24
		return sign | uint16(math.RoundToEven(float64(size)*0x1p24))
	}
	low := bits &^ (1 << 31)
	low += 0xfff + low>>13&1
	return sign | uint16(low>>13-(127-15)<<10)
}
