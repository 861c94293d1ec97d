package quant

import (
	"math"
	"unsafe"
)

// Format is how a row is stored.
type Format uint8

// The formats.
const (
	None Format = iota // not quantized
	Int8
	NF4
)

// Block is how many numbers share a scale.
const Block = 64

// scaleBytes is the size of a scale.
const scaleBytes = 4

// codeBytes returns the size of a block's codes.
func (f Format) codeBytes() int {
	if f == NF4 {
		return Block / 2
	}
	return Block
}

// Blocks returns the number of blocks of a row.
func Blocks(cols int) int { return (cols + Block - 1) / Block }

// RowBytes returns the size of a row.
func (f Format) RowBytes(cols int) int { return Blocks(cols) * (f.codeBytes() + scaleBytes) }

// Parts returns the codes and the scales of a row, from a block on.
func (f Format) Parts(row []byte, cols, block int) (codes []byte, scales []float32) {
	blocks := Blocks(cols)
	codes = row[: blocks*f.codeBytes() : blocks*f.codeBytes()]
	rest := row[blocks*f.codeBytes():][:blocks*scaleBytes]
	if blocks > 0 {
		scales = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(rest))), blocks)
	}
	return codes[block*f.codeBytes():], scales[block:]
}

// NF4Values are the 16 values of NF4 in ascending order (appendix E of QLoRA).
var NF4Values = [16]float32{
	-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
	-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
}

// nf4Bounds lie halfway between the values: a number above bound i has a value above value i.
var nf4Bounds = func() (bounds [15]float32) {
	for i := range bounds {
		bounds[i] = float32((float64(NF4Values[i]) + float64(NF4Values[i+1])) / 2)
	}
	return bounds
}()

// nf4Pairs are the two values of each byte.
var nf4Pairs = func() (pairs [256][2]float32) {
	for b := range pairs {
		pairs[b] = [2]float32{NF4Values[b>>4], NF4Values[b&15]}
	}
	return pairs
}()

// zeroNF4 is the code of 0.
const zeroNF4 = 7

// Encode stores a row of numbers.
func (f Format) Encode(row []byte, x []float32) {
	codes, scales := f.Parts(row, len(x), 0)
	for b := range scales {
		block := x[b*Block : min((b+1)*Block, len(x))]
		to := codes[b*f.codeBytes():][:f.codeBytes()]
		if f == NF4 {
			scales[b] = encodeNF4(to, block)
		} else {
			scales[b] = encodeInt8(to, block)
		}
	}
}

// largest returns the largest magnitude; NaN if a number is not finite.
func largest(x []float32) float32 {
	var most float32
	for _, v := range x {
		if v-v != 0 {
			return float32(math.NaN())
		}
		most = max(most, v, -v)
	}
	return most
}

func encodeInt8(to []byte, x []float32) (scale float32) {
	clear(to)
	scale = largest(x) / 127
	if !(scale > 0) { // all numbers are 0, or too small for a scale, or there is one that is none
		return scale
	}
	for i, v := range x {
		q := math.RoundToEven(float64(v / scale))
		to[i] = byte(int8(max(-127, min(127, q))))
	}
	return scale
}

func encodeNF4(to []byte, x []float32) (scale float32) {
	for i := range to {
		to[i] = zeroNF4<<4 | zeroNF4
	}
	scale = largest(x)
	if !(scale > 0) {
		return scale
	}
	for i, v := range x {
		c := codeNF4(v / scale)
		if i%2 == 0 {
			to[i/2] = c<<4 | zeroNF4
		} else {
			to[i/2] = to[i/2]&0xf0 | c
		}
	}
	return scale
}

// codeNF4 returns the index of the nearest value; of two as near, the lower one's.
func codeNF4(v float32) byte {
	lo, hi := 0, len(nf4Bounds)
	for lo < hi {
		if mid := (lo + hi) / 2; v > nf4Bounds[mid] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return byte(lo)
}

// Decode stores the numbers of whole blocks.
func (f Format) Decode(dst []float32, codes []byte, scales []float32) {
	for b := range len(dst) / Block {
		to, scale := dst[b*Block:][:Block], scales[b]
		if f == NF4 {
			for i, c := range codes[b*Block/2:][:Block/2] {
				pair := &nf4Pairs[c]
				to[2*i], to[2*i+1] = pair[0]*scale, pair[1]*scale
			}
			continue
		}
		for i, c := range codes[b*Block:][:Block] {
			to[i] = float32(int8(c)) * scale
		}
	}
}
