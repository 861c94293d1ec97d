// Package rng is Troupe's only source of randomness for training: a
// counter-based generator. A number is a pure function of (seed, stream,
// counter), never of a position in a sequence, so that initial weights, dropout
// masks and training windows are the same whatever the layout of the pipeline,
// the number of threads, or the step a run was resumed at.
//
// The function is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC'11), the generator that CUDA libraries use
// too, so that a GPU kernel can produce the same bits.
//
// The package may not know what the numbers are for.
package rng

import "math"

const (
	mulA = 0xD2511F53
	mulB = 0xCD9E8D57
	keyA = 0x9E3779B9
	keyB = 0xBB67AE85
)

// Key selects a family of streams: k0 and k1 are the two key words of Philox.
type Key struct{ K0, K1 uint32 }

// NewKey derives the key of one stream from the run's seed and the stream's
// identity (a parameter's ordinal, a dropout site, a purpose). Both words pass
// through a 64-bit finalizer, so adjacent ids give unrelated keys.
func NewKey(seed uint64, stream uint64) Key {
	h := mix(seed + 0x9E3779B97F4A7C15)
	h = mix(h ^ (stream+1)*0xD1342543DE82EF95)
	return Key{uint32(h), uint32(h >> 32)}
}

// StringStream names a stream by text (FNV-1a, 64 bits).
func StringStream(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return h
}

// mix is the finaliser of SplitMix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Block returns the four 32-bit words of Philox4x32-10 at the counter (hi, lo).
func Block(k Key, hi, lo uint64) (uint32, uint32, uint32, uint32) {
	c0, c1 := uint32(lo), uint32(lo>>32)
	c2, c3 := uint32(hi), uint32(hi>>32)
	k0, k1 := k.K0, k.K1
	for range 10 {
		pa := uint64(c0) * mulA
		pb := uint64(c2) * mulB
		c0, c1, c2, c3 = uint32(pb>>32)^c1^k0, uint32(pb), uint32(pa>>32)^c3^k1, uint32(pa)
		k0 += keyA
		k1 += keyB
	}
	return c0, c1, c2, c3
}

// Uint64 returns a 64-bit word for the counter (hi, lo).
func Uint64(k Key, hi, lo uint64) uint64 {
	a, b, _, _ := Block(k, hi, lo)
	return uint64(a) | uint64(b)<<32
}

// Intn returns a number in [0, n), n > 0, without modulo bias worth naming
// (the 64-bit multiply-shift leaves at most n/2^64).
func Intn(k Key, hi, lo uint64, n uint64) uint64 {
	x := Uint64(k, hi, lo)
	// High word of the 128-bit product x*n.
	xh, xl := x>>32, x&0xFFFFFFFF
	nh, nl := n>>32, n&0xFFFFFFFF
	t := xl*nl>>32 + xh*nl
	u := t&0xFFFFFFFF + xl*nh
	return xh*nh + t>>32 + u>>32
}

// Uniform maps a 32-bit word to (0, 1] in float64; the open end at zero makes
// it safe under a logarithm.
func Uniform(u uint32) float64 { return (float64(u) + 1) / (1 << 32) }

// Normal fills dst with normal deviates of the given mean and standard
// deviation. dst[i] depends on (k, first+i) alone. Box-Muller on the four words
// of a block gives four deviates.
func Normal(dst []float32, k Key, first uint64, mean, std float64) {
	for i := 0; i < len(dst); {
		idx := first + uint64(i)
		a, b, c, d := Block(k, 0, idx/4)
		r0 := math.Sqrt(-2 * math.Log(Uniform(a)))
		r1 := math.Sqrt(-2 * math.Log(Uniform(c)))
		s0, c0 := math.Sincos(2 * math.Pi * Uniform(b))
		s1, c1 := math.Sincos(2 * math.Pi * Uniform(d))
		four := [4]float64{r0 * c0, r0 * s0, r1 * c1, r1 * s1}
		for j := idx % 4; j < 4 && i < len(dst); j++ {
			dst[i] = float32(mean + float64(std*four[j])) // not fused with the addition, as arm64 would
			i++
		}
	}
}

// Between fills dst with numbers that are uniform between low and high. dst[i] depends on
// (k, first+i) alone.
func Between(dst []float32, k Key, first uint64, low, high float64) {
	for i := 0; i < len(dst); {
		idx := first + uint64(i)
		a, b, c, d := Block(k, 0, idx/4)
		four := [4]uint32{a, b, c, d}
		for j := idx % 4; j < 4 && i < len(dst); j++ {
			dst[i] = float32(low + float64((high-low)*Uniform(four[j]))) // see Normal
			i++
		}
	}
}
