package cpu

import "math"

// exp32 is eˣ in float32, within 2 ulp where the result is a normal number.
// x = n·ln2 + r with |r| ≤ ln2/2, and eʳ by its Taylor polynomial of degree 7 in
// Horner's form.
func exp32(x float32) float32 {
	const (
		log2e = 1.44269504088896341
		ln2hi = 0.693359375 // few bits: n·ln2hi is exact
		ln2lo = -2.12194440e-4
		magic = 12582912 // 1.5·2²³: adding it rounds to an integer
	)
	if !(x > -104) {
		if x != x {
			return x
		}
		return 0
	}
	x = min(x, 89) // infinite from 88.73 on
	t := float32(x*log2e) + magic
	n := t - magic
	r := x - n*ln2hi
	r -= n * ln2lo
	p := float32(1.0 / 5040)
	p = p*r + 1.0/720
	p = p*r + 1.0/120
	p = p*r + 1.0/24
	p = p*r + 1.0/6
	p = p*r + 0.5
	p = p*r + 1
	p = p*r + 1
	// 2ⁿ in two factors: n may be 128 or −150.
	i := int32(n)
	h := i >> 1
	return p * math.Float32frombits(uint32(h+127)<<23) * math.Float32frombits(uint32(i-h+127)<<23)
}
