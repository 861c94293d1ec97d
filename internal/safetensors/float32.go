package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// F32 returns a tensor of float32 values. They are encoded during the write, not copied, and must
// not change until the tensor is written.
func F32(name string, shape []int, values []float32) Tensor {
	return Tensor{Name: name, DType: "F32", Shape: shape, Stream: func(w io.Writer) error {
		const chunk = 16 << 10
		buffer := make([]byte, 0, 4*min(chunk, len(values)))
		for part := range slices.Chunk(values, chunk) {
			buffer = appendFloat32(buffer[:0], part)
			if _, err := w.Write(buffer); err != nil {
				return err
			}
		}
		return nil
	}}
}

// EncodeFloat32 returns the values as the bytes of an F32 tensor.
func EncodeFloat32(values []float32) []byte {
	return appendFloat32(make([]byte, 0, 4*len(values)), values)
}

func appendFloat32(to []byte, values []float32) []byte {
	for _, v := range values {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(v))
	}
	return to
}

// Float32s decodes the bytes of an F32, F16 or BF16 tensor. Widening the narrow types is exact.
func Float32s(dtype string, data []byte) ([]float32, error) {
	width, err := float32Width(dtype)
	if err != nil {
		return nil, err
	}
	values := make([]float32, len(data)/width)
	return values, DecodeFloat32(values, dtype, data)
}

// DecodeFloat32 is Float32s into memory of the caller; the number of elements must match.
func DecodeFloat32(into []float32, dtype string, data []byte) error {
	width, err := float32Width(dtype)
	if err != nil {
		return err
	}
	if len(data)%width != 0 || len(data)/width != len(into) {
		return fmt.Errorf("%d bytes of %s hold %d elements, but the destination holds %d", len(data), dtype, len(data)/width, len(into))
	}
	switch dtype {
	case "F32":
		for i := range into {
			into[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case "BF16":
		for i := range into {
			into[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		}
	case "F16":
		for i := range into {
			into[i] = widenHalf(binary.LittleEndian.Uint16(data[2*i:]))
		}
	}
	return nil
}

func float32Width(dtype string) (int, error) {
	switch dtype {
	case "F32":
		return 4, nil
	case "F16", "BF16":
		return 2, nil
	}
	return 0, fmt.Errorf("dtype %s cannot be converted to float32: only F32, F16 and BF16 can", dtype)
}

// widenHalf returns the value of an IEEE half: a sign, 5 bits of exponent with
// bias 15, 10 bits of fraction.
func widenHalf(half uint16) float32 {
	sign := uint32(half>>15) << 31
	exponent := uint32(half>>10) & 0x1f
	fraction := uint32(half) & 0x3ff
	switch exponent {
	case 0: // zero or subnormal: fraction · 2^-24, exact in float32
		return math.Float32frombits(math.Float32bits(float32(fraction)*0x1p-24) | sign)
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
