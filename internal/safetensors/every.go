package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DecodeEvery reads elements of a tensor of type F32, F16 or BF16 that are step elements apart, from index first on.
func DecodeEvery(into []float32, dtype string, data []byte, first, step int) error {
	width, err := float32Width(dtype)
	if err != nil || len(into) == 0 {
		return err
	}
	count := len(data) / width
	if first < 0 || first >= count || step < 1 || len(into)-1 > (count-1-first)/step {
		return fmt.Errorf("%d elements from %d on, %d apart, do not exist; there are %d", len(into), first, step, count)
	}
	if step == 1 {
		return DecodeFloat32(into, dtype, data[first*width:(first+len(into))*width])
	}
	at, next := first*width, step*width
	for i := range into {
		switch dtype {
		case "F32":
			into[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[at:]))
		case "BF16":
			into[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[at:])) << 16)
		default:
			into[i] = widenHalf(binary.LittleEndian.Uint16(data[at:]))
		}
		at += next
	}
	return nil
}
