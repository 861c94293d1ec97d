package main

import "fmt"

func neonVecDrop(n *neon) {
	n.start("dropNEON", "(y, x []float32, keep []uint32, scale float32)", "stores scale·x where keep is set, else 0.")
	n.drop(false)
	n.start("dropAddNEON", "(y, x []float32, keep []uint32, skip []float32, scale float32)",
		"stores scale·x + skip where keep is set, else skip.")
	n.drop(true)
}

func (n *neon) drop(add bool) {
	y, x, keep, count, scale := n.out("y"), n.in("x"), n.in("keep"), n.length("y"), n.scalar("scale")
	streams := []*stream{y, x, keep}
	var skip *stream
	if add {
		skip = n.in("skip")
		streams = append(streams, skip)
	}
	n.each(count, streams, func(a *access) {
		r := a.load(x)
		n.logic("VAND", a.load(keep), r, r)
		n.mul(r, r, spread(scale))
		if add {
			n.add(r, r, a.load(skip))
		}
		a.store(r, y)
	})
	n.end()
}

const neonKeepDoc = `
Philox4x32-10: four words for each block. random stores them; keep stores masks
that say whether they reach a threshold.

Each vector holds one word of four blocks, and there are two groups of four. A round is

	c0, c1, c2, c3 = hi(B·c2) ^ c1 ^ k0, lo(B·c2), hi(A·c0) ^ c3 ^ k1, lo(A·c0)

A store of four registers in turns puts the words block after block.

Registers: count, the blocks' numbers in 64 bits; c0 to c3 of each group, the first in V0 to
V3 and the second in V4 to V7 at the end; the 20 keys, four in a register; A, B; the threshold.`

func neonVecKeep(n *neon) {
	n.start("keepNEON", "(keep []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64, threshold uint32)",
		"stores ones for words that reach the threshold and zeros for others: four of each",
		"block from the given one on. Their number is a multiple of 32; keys are those of the ten rounds.")
	n.philox("keep", true)
	n.start("randomNEON", "(words []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64)",
		"stores random words: four of each block from the given one on. Their number is a multiple of 32; keys are",
		"those of the ten rounds.")
	n.philox("words", false)
}

// philox stores the words of blocks in a parameter, or whether they reach the threshold.
func (n *neon) philox(to string, compare bool) {
	last := n.vs(8)
	out, count, t := n.base(to), n.length(to), n.gp()
	done := n.label("done")
	n.ins("CBZ", count, done)
	word := func(name string) v {
		r := n.v()
		n.ins("MOVWU", component(n.param(name)), t)
		n.ins("VDUP", t, r.s4())
		return r
	}
	constant := func(c uint32) v {
		r := n.v()
		n.ins("MOVD", fmt.Sprintf("$%#08x", c), t)
		n.ins("VDUP", t, r.s4())
		return r
	}
	mulA, mulB := constant(0xD2511F53), constant(0xCD9E8D57)
	low, high := word("stepLow"), word("stepHigh")
	var threshold v
	if compare {
		threshold = word("threshold")
	}
	keys := n.vs(5)
	for i, k := range keys {
		for j := range 4 {
			n.ins("MOVWU", component(n.param("keys").Index(4*i+j)), t)
			n.ins("VMOV", t, fmt.Sprintf("V%d.S[%d]", k, j))
		}
	}
	// The blocks' numbers, two in a vector.
	blocks, two := n.pair(), n.v()
	n.ins("MOVD", imm(2), t)
	n.ins("VDUP", t, two.d2())
	n.ins("MOVD", component(n.param("block")), t)
	n.ins("VMOV", t, fmt.Sprintf("V%d.D[0]", blocks[0]))
	n.ins("ADD", imm(1), t)
	n.ins("VMOV", t, fmt.Sprintf("V%d.D[1]", blocks[0]))
	next := func() {
		n.ins("VADD", two.d2(), blocks[0].d2(), blocks[1].d2())
	}
	key := func(i int) v {
		r := n.v()
		n.ins("VDUP", fmt.Sprintf("V%d.S[%d]", keys[i/4], i%4), r.s4())
		return r
	}
	n.repeat(count, 32, func() {
		groups := make([][4]v, 2)
		for g := range groups {
			copy(groups[g][:], last[4*g:])
			c := groups[g]
			next()
			n.ins("VUZP1", blocks[1].s4(), blocks[0].s4(), c[0].s4())
			n.ins("VUZP2", blocks[1].s4(), blocks[0].s4(), c[1].s4())
			n.ins("VADD", two.d2(), blocks[1].d2(), blocks[0].d2())
			n.ins("VMOV", low.b(), c[2].b())
			n.ins("VMOV", high.b(), c[3].b())
		}
		spare := n.vs(4)
		for round := range 10 {
			n.scoped(func() {
				k0, k1 := key(round), key(10+round)
				for g, c := range groups {
					p, q := spare[0:2], spare[2:4]
					n.enc(product64(p[0], c[0], mulA, false), product64(p[1], c[0], mulA, true))
					n.enc(product64(q[0], c[2], mulB, false), product64(q[1], c[2], mulB, true))
					n.ins("VUZP2", q[1].s4(), q[0].s4(), c[0].s4())
					n.ins("VUZP2", p[1].s4(), p[0].s4(), c[2].s4())
					n.ins("VEOR", c[1].b(), c[0].b(), c[0].b())
					n.ins("VEOR", c[3].b(), c[2].b(), c[2].b())
					n.ins("VUZP1", q[1].s4(), q[0].s4(), c[1].s4())
					n.ins("VUZP1", p[1].s4(), p[0].s4(), c[3].s4())
					n.ins("VEOR", k0.b(), c[0].b(), c[0].b())
					n.ins("VEOR", k1.b(), c[2].b(), c[2].b())
					groups[g] = c
				}
			})
		}
		for _, c := range groups {
			for _, r := range c {
				if compare {
					n.enc(notLess(r, r, threshold))
				}
			}
			n.ins("VST4.P", fmt.Sprintf("[%s, %s, %s, %s]", c[0].s4(), c[1].s4(), c[2].s4(), c[3].s4()), address(out, 64))
		}
	})
	n.mark(done)
	n.end()
}
