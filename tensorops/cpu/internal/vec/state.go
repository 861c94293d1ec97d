package vec

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/troupe-ml/troupe/internal/optstate"
)

// HalvesSize is the length of a buffer for the random bits of n elements.
func HalvesSize(n int) int { return WordsSize(n/2 + 1) }

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// Halves returns the random bits of n elements from index first on, those of optstate.Halves, as a part of buf, which has HalvesSize(n)
// elements or more.
func (k *Kernels) Halves(buf []uint32, r Random, first uint64, n int) []uint16 {
	skip := int(first % 2)
	words := k.Words(buf, r, first/2, (skip+n+1)/2)
	if bigEndian { // the lower half comes first
		for i, w := range words {
			words[i] = bits.RotateLeft32(w, 16)
		}
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(words))), 2*len(words))[skip:][:n]
}

// RoundHalves is optstate.RoundBF16 with random bits.
func (k *Kernels) RoundHalves(dst []uint16, src []float32, halves []uint16) {
	src, halves = src[:len(dst)], halves[:len(dst)]
	n := len(dst) &^ 31
	k.roundHalves(dst[:n], src[:n], halves[:n])
	optstate.RoundBF16(dst[n:], src[n:], halves[n:])
}

// EncodeState is optstate.Encode of a block.
func (k *Kernels) EncodeState(codes []byte, x []float32, ofRoot bool, halves []uint16) (scale float32) {
	x = x[:len(codes)]
	largest := k.largest(x)
	scale = optstate.ScaleOf(largest, ofRoot)
	switch {
	case !optstate.Finite(largest):
		optstate.EncodeInfinite(codes, x, ofRoot)
	case halves == nil:
		optstate.EncodeBy(codes, x, scale, ofRoot, nil)
	default:
		encode := k.encodeSigned
		if ofRoot {
			encode = k.encodeRoot
		}
		n, halves := len(codes)&^31, halves[:len(codes)]
		encode(codes[:n], x[:n], halves[:n], scale)
		optstate.EncodeBy(codes[n:], x[n:], scale, ofRoot, halves[n:])
	}
	return scale
}

// DecodeState is optstate.Decode of a block.
func (k *Kernels) DecodeState(x []float32, codes []byte, scale float32, ofRoot bool) {
	codes = codes[:len(x)]
	decode := k.decodeSigned
	if ofRoot {
		decode = k.decodeRoot
	}
	n := len(x) &^ 31
	decode(x[:n], codes[:n], scale)
	optstate.Decode(x[n:], codes[n:], scale, ofRoot)
}

func encodeSignedGo(codes []byte, x []float32, halves []uint16, scale float32) {
	optstate.EncodeBy(codes, x, scale, false, halves)
}

func encodeRootGo(codes []byte, x []float32, halves []uint16, scale float32) {
	optstate.EncodeBy(codes, x, scale, true, halves)
}

func decodeSignedGo(x []float32, codes []byte, scale float32) {
	optstate.Decode(x, codes, scale, false)
}

func decodeRootGo(x []float32, codes []byte, scale float32) { optstate.Decode(x, codes, scale, true) }
