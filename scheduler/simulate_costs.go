package scheduler

import "math/bits"

// Jittered makes costs vary. Each action takes between 1 − spread and 1 + spread times its cost.
// The factor depends only on the seed and the action, so every table gets the same ones.
func Jittered(costs Costs, spread float64, seed uint64) Costs {
	return func(rank int, a Action) float64 {
		h := mix(seed ^ mix(uint64(a.Chunk)<<34|uint64(a.Microbatch)<<2|uint64(a.Type-F)))
		if a.Part > 0 {
			h = mix(h ^ (uint64(a.Part)<<3 | uint64(a.Type-F)))
		}
		u := float64(h>>11) / (1 << 53) // from 0 to 1
		return costs(rank, a) * (1 + spread*(2*u-1))
	}
}

// Slowed makes one rank take factor times as long for every action.
func Slowed(costs Costs, slow int, factor float64) Costs {
	return func(rank int, a Action) float64 {
		c := costs(rank, a)
		if rank == slow {
			c *= factor
		}
		return c
	}
}

// mix spreads every bit of x over all bits (the last steps of MurmurHash3, and a rotation that
// helps for small numbers).
func mix(x uint64) uint64 {
	x = bits.RotateLeft64(x+0x9e3779b97f4a7c15, 27)
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
