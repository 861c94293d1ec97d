package vec

import "github.com/troupe-ml/troupe/internal/base/rng"

// Random is a sequence of random words: the four of each block (hi, 0), (hi, 1), … of a key.
type Random struct {
	keys [20]uint32 // of the rounds: ten for each word of the key
	hi   uint64
}

// NewRandom prepares the words of a key and the upper half of a counter.
func NewRandom(key rng.Key, hi uint64) Random { return Random{keys: roundKeys(key), hi: hi} }

// WordsSize is the length of a buffer for n words: whole blocks of 32 after up to three that are not used.
func WordsSize(n int) int { return (3 + n + 31) &^ 31 }

// Words returns the n words from number first on, as a part of buf, which has WordsSize(n) elements or more.
func (k *Kernels) Words(buf []uint32, r Random, first uint64, n int) []uint32 {
	skip := int(first % 4)
	whole := (skip + n + 31) &^ 31
	k.random(buf[:whole], r.keys, uint32(r.hi), uint32(r.hi>>32), first/4)
	return buf[skip:][:n]
}

func roundKeys(key rng.Key) (keys [20]uint32) {
	for round := range uint32(10) {
		keys[round] = key.K0 + round*0x9E3779B9
		keys[10+round] = key.K1 + round*0xBB67AE85
	}
	return keys
}

func randomGo(words []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64) {
	hi := uint64(stepHigh)<<32 | uint64(stepLow)
	key := rng.Key{K0: keys[0], K1: keys[10]}
	for i := 0; i < len(words); i += 4 {
		words[i], words[i+1], words[i+2], words[i+3] = rng.Block(key, hi, block+uint64(i/4))
	}
}
