package rng

import "math/bits"

// halfBits is the least width of the halves that Permute mixes: fewer bits would leave
// many orders of a few things out.
const halfBits = 4

// Permute returns the image of x under a permutation of [0, n) that the key and the
// number choose, in constant memory: a Feistel network over the next power of 4 (Luby
// and Rackoff 1988), applied until the image is below n ("cycle walking", Black and
// Rogaway 2002).
func Permute(k Key, number, x, n uint64) uint64 {
	const rounds = 6
	half := max((bits.Len64(n-1)+1)/2, halfBits)
	mask := uint64(1)<<half - 1
	for {
		left, right := x>>half, x&mask
		for round := range uint64(rounds) {
			left, right = right, left^Uint64(k, number, round<<32|right)&mask
		}
		if x = left<<half | right; x < n {
			return x
		}
	}
}
