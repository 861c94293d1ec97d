package optstate

import "math"

// Block is how many elements share a scale.
const Block = 256

// minScale is the smallest scale. With it the smallest value of each code is read as a normal float32.
const minScale = 0x1p-40

// decades is the number of decades of a code, below 1.
const decades = 7

// code is one of the two codes.
type code struct {
	values []float32 // of the magnitudes in ascending order; the first is 0, the last 1
	value  [256]float32
	// For a fast search: value is values, next[k] has the bits of value k+1, and gaps[k] is the distance to it. Behind the last value there
	// is none.
	next [256]uint32
	gaps [256]float64
	// floor finds a value: floor[b] is the index of the largest value that is not above any number with the upper bits b, from
	// firstFloor on. At most one more value is below such a number.
	floor [lastFloor - firstFloor + 1]uint8
}

// The floor table goes by the exponent and the first 7 bits of the fraction.
const (
	floorShift = 16
	firstFloor = 0x3400 // 2^-23, which is below the smallest value
	lastFloor  = 0x3f80 // 1
)

var signed, root = newCode(1, 1), newCode(0, 2)

// newCode makes the code whose decade i has factor·2^i values, from decade first on.
func newCode(first, factor int) *code {
	c := &code{values: []float32{0}}
	for i := first; i < decades; i++ {
		n := factor << i
		for j := range n {
			// 0.1 + 0.9·(j + 1/2)/n over a common denominator, so that it is rounded once.
			c.values = append(c.values, float32(float64(2*n+18*j+9)/(float64(20*n)*pow10(decades-1-i))))
		}
	}
	c.values = append(c.values, 1)
	k := 0
	for b := firstFloor; b <= lastFloor; b++ {
		for least := math.Float32frombits(uint32(b) << floorShift); b > firstFloor && k+1 < len(c.values) && c.values[k+1] <= least; {
			k++
		}
		c.floor[b-firstFloor] = uint8(k)
	}
	copy(c.value[:], c.values)
	for i := range c.next {
		c.next[i], c.gaps[i] = math.MaxInt32, math.Inf(1)
	}
	for i := range len(c.values) - 1 {
		c.next[i], c.gaps[i] = math.Float32bits(c.values[i+1]), float64(c.values[i+1])-float64(c.values[i])
	}
	return c
}

// pow10 returns a power of ten, which is exact.
func pow10(n int) float64 {
	p := 1.0
	for range n {
		p *= 10
	}
	return p
}

// below returns the index of the largest value that is at most r. r is from 0 to 1.
func (c *code) below(r float32) uint8 {
	bits := math.Float32bits(r)
	k := c.floor[max(int(bits>>floorShift)-firstFloor, 0)]
	// One more if next[k] is at most r: the order of magnitudes is that of their bits, and a jump would often be predicted wrongly.
	return k + 1 - uint8((bits-c.next[k])>>31)
}

// Values returns the values of the magnitudes of a code, in ascending order: of the root code, or of the signed one.
func Values(ofRoot bool) []float32 {
	if ofRoot {
		return root.values
	}
	return signed.values
}

// Scales returns the number of scales of n elements.
func Scales(n int) int { return (n + Block - 1) / Block }
