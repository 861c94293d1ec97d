package main

import "fmt"

const neonTileDoc = `Tiles of a matrix product: rows of A in strips by one strip of B.

Register plan: four accumulators for each row of C; a row of B in four registers; A's
numbers in two, of which a multiply-add takes one lane. With 6 × 4 accumulators of 32
registers there are more independent sums than four multiply-adds a cycle take cycles. Tiles
are as large as on AVX2, and each element's sum runs over k in the same order.`

const (
	neonMR   = 6
	neonVecs = 4 // vectors in a row of C
)

func neonTiles(n *neon) {
	for rows := 1; rows <= neonMR; rows++ {
		n.tile(rows)
	}
}

// tile writes the function for a number of rows.
func (n *neon) tile(rows int) {
	name := fmt.Sprintf("tileNEON_%d", rows)
	n.start(name, "(strips, k int, a, b, c *float32, lda, ldb, ldc int, add bool, next *byte, lines, perRow, skip int)",
		fmt.Sprintf("multiplies strips of A, %d rows of each, by a strip of B: see tileFunc.", rows))
	strips, k, a, b, c := n.integer("strips"), n.integer("k"), n.integer("a"), n.integer("b"), n.integer("c")
	lda, ldb, ldc, add := n.integer("lda"), n.integer("ldb"), n.integer("ldc"), n.gp()
	n.ins("MOVBU", component(n.param("add")), add)
	for _, r := range []gp{lda, ldb, ldc} {
		n.ins("LSL", imm(2), r, r)
	}
	acc := make([][]v, rows)
	for r := range acc {
		acc[r] = n.vs(neonVecs)
	}
	bv, av := n.vs(neonVecs), n.vs(2)
	bp, count, row := n.gp(), n.gp(), n.gp()
	labels := map[string]string{}
	for _, l := range []string{"strip", "four", "rest", "one", "store", "replace", "done"} {
		labels[l] = n.label(l)
	}

	n.mark(labels["strip"])
	n.comment("C's lines are on their way while the sums are made.")
	n.ins("MOVD", c, row)
	for r := range rows {
		n.ins("PRFM", address(row, 0), "PLDL1KEEP")
		n.ins("PRFM", address(row, 16*neonVecs-8), "PLDL1KEEP") // rows need not begin at a line's start
		if r+1 < rows {
			n.ins("ADD", ldc, row, row)
		}
	}
	for r := range acc {
		for _, x := range acc[r] {
			n.zero(x)
		}
	}
	n.ins("MOVD", b, bp)

	// step records the products of one k. It reads no more of A than there are rows: A may
	// lie as the caller has it.
	step := func() {
		n.memory("FLDPQ", bp, 0, true, bv[0], bv[1])
		n.memory("FLDPQ", bp, 32, true, bv[2], bv[3])
		n.ins("ADD", ldb, bp, bp)
		first := n.numbersOfA(a, av, rows)
		n.ins("ADD", lda, a, a)
		for r := range acc {
			for i := range bv {
				if r < first {
					n.enc(fmlaElement(acc[r][i], bv[i], av[0], r))
				} else {
					n.enc(fmlaElement(acc[r][i], bv[i], av[1], r-first))
				}
			}
		}
	}
	const unroll = 4
	n.ins("SUBS", imm(unroll), k, count)
	n.ins("BLT", labels["rest"])
	n.mark(labels["four"])
	for range unroll {
		step()
	}
	n.ins("SUBS", imm(unroll), count, count)
	n.ins("BGE", labels["four"])
	n.mark(labels["rest"])
	n.ins("ADDS", imm(unroll), count, count)
	n.ins("BEQ", labels["store"])
	n.mark(labels["one"])
	step()
	n.ins("SUBS", imm(1), count, count)
	n.ins("BNE", labels["one"])

	n.mark(labels["store"])
	n.ins("CBZ", add, labels["replace"])
	n.tileRows(acc, c, ldc, bv)
	n.ins("SUBS", imm(1), strips, strips)
	n.ins("BNE", labels["strip"])
	n.ins("B", labels["done"])
	n.mark(labels["replace"])
	n.tileRows(acc, c, ldc, nil)
	n.ins("SUBS", imm(1), strips, strips)
	n.ins("BNE", labels["strip"])
	n.mark(labels["done"])
	n.end()
}

// numbersOfA loads as many numbers as there are rows, and returns how many of them the
// first register has.
func (n *neon) numbersOfA(a gp, av []v, rows int) (first int) {
	load := map[int]string{1: "FMOVS", 2: "FMOVD", 4: "FMOVQ"}
	first = 4
	for first > rows {
		first /= 2
	}
	n.memory(load[first], a, 0, true, av[0])
	if rows > first {
		n.memory(load[rows-first], a, 4*first, true, av[1])
	}
	return first
}

// tileRows stores the sums at c and moves it down by as many rows; with four registers to
// spare, it adds what is there.
func (n *neon) tileRows(acc [][]v, c, ldc gp, spare []v) {
	for r := range acc {
		if spare != nil {
			n.memory("FLDPQ", c, 0, true, spare[0], spare[1])
			n.memory("FLDPQ", c, 32, true, spare[2], spare[3])
			for i, x := range spare {
				n.enc(opFADD.s(acc[r][i], acc[r][i], x))
			}
		}
		n.memory("FSTPQ", c, 0, false, acc[r][0], acc[r][1])
		n.memory("FSTPQ", c, 32, false, acc[r][2], acc[r][3])
		n.ins("ADD", ldc, c, c)
	}
}

const neonPackDoc = `Packing of whole strips.

transposeN: eight rows of the source, eight numbers of each, turn into eight numbers of
each k by squares of 4 × 4, in two rounds: pairs, then fours.
copyN: the numbers of a strip lie side by side already.
widen16: bfloat16 becomes the upper half of a float32.`

func neonPacks(n *neon) {
	n.transpose(6)
	n.transpose(8)
	n.copyStrip(6)
	n.copyStrip(16)
	n.start("widen16", "(dst *float32, src *uint16, sixteens int)", "stores 16·sixteens numbers of bfloat16 as float32.")
	dst, src, count := n.integer("dst"), n.integer("src"), n.integer("sixteens")
	n.repeat(count, 1, func() {
		since := len(n.lines)
		h := n.loadAt(src, 0)
		n.goOn(32, since, src)
		for i := range h {
			since := len(n.lines)
			x := n.pair()
			n.enc(shiftWiden(x[0], h[i], false), shiftWiden(x[1], h[i], true))
			n.storeAt(x, dst, 0)
			n.goOn(32, since, dst)
		}
	})
	n.end()
}

// transpose packs eight rows of the source, or fewer, as gemmTranspose does.
func (n *neon) transpose(width int) {
	name := fmt.Sprintf("transpose%d", width)
	n.start(name, "(dst *float32, strip int, src *float32, stride, eights, rows int)",
		fmt.Sprintf("stores, for 8·eights consecutive k, %d numbers at dst + k·strip: element j from", width),
		"src + j·stride + k, where j ≥ rows repeats the last row. strip and stride are in bytes.")
	dst, strip, src := n.integer("dst"), n.integer("strip"), n.integer("src")
	stride, eights, rows := n.integer("stride"), n.integer("eights"), n.integer("rows")
	p := []gp{src}
	step, right := n.gp(), n.gp()
	for j := 1; j < width; j++ {
		r := n.gp()
		n.ins("CMP", imm(j), rows)
		n.ins("CSEL", "GT", stride, "ZR", step)
		n.ins("ADD", step, p[j-1], r)
		p = append(p, r)
	}
	n.ins("ADD", imm(16), dst, right)
	n.repeat(eights, 1, func() {
		since := len(n.lines)
		y := make([]pair, 8)
		for j, r := range p {
			y[j] = n.loadAt(r, 0)
		}
		n.goOn(32, since, p...)
		for half := range 2 {
			left := [4]v{y[0][half], y[1][half], y[2][half], y[3][half]}
			n.square(left)
			if width == 8 {
				q := [4]v{y[4][half], y[5][half], y[6][half], y[7][half]}
				n.square(q)
				for i, x := range left {
					n.memory("FSTPQ", dst, 0, false, x, q[i])
					n.ins("ADD", strip, dst, dst)
				}
				continue
			}
			n.scoped(func() {
				a, b, t := y[4][half], y[5][half], n.vs(2)
				n.ins("VZIP1", b.s4(), a.s4(), t[0].s4())
				n.ins("VZIP2", b.s4(), a.s4(), t[1].s4())
				for i, x := range left {
					n.memory("FMOVQ", dst, 0, false, x)
					n.ins("VST1", fmt.Sprintf("V%d.D[%d]", t[i/2], i%2), address(right, 0))
					n.ins("ADD", strip, dst, dst)
					n.ins("ADD", strip, right, right)
				}
			})
		}
	})
	n.end()
}

// square transposes 4 × 4 numbers.
func (n *neon) square(r [4]v) {
	n.scoped(func() {
		t := n.vs(4)
		for i := range 2 {
			n.ins("VTRN1", r[2*i+1].s4(), r[2*i].s4(), t[2*i].s4())
			n.ins("VTRN2", r[2*i+1].s4(), r[2*i].s4(), t[2*i+1].s4())
		}
		for i := range 2 {
			n.ins("VTRN1", t[2+i].d2(), t[i].d2(), r[i].d2())
			n.ins("VTRN2", t[2+i].d2(), t[i].d2(), r[2+i].d2())
		}
	})
}

// copyStrip packs a whole strip whose elements are contiguous.
func (n *neon) copyStrip(width int) {
	name := fmt.Sprintf("copy%d", width)
	n.start(name, "(dst, src *float32, stride, depth int)",
		fmt.Sprintf("stores, for each k below depth, the %d numbers at src + k·stride (in bytes).", width))
	dst, src, stride, depth := n.integer("dst"), n.integer("src"), n.integer("stride"), n.integer("depth")
	n.repeat(depth, 1, func() {
		var stores []func()
		for at := 0; at < width; {
			op, count, floats := "FMOVD", 1, 2
			switch left := width - at; {
			case left >= 8:
				op, count, floats = "FLDPQ", 2, 8
			case left >= 4:
				op, floats = "FMOVQ", 4
			}
			regs, here := n.vs(count), 4*at
			n.memory(op, src, here, true, regs...)
			if op == "FLDPQ" {
				op = "FSTPQ"
			}
			stores = append(stores, func() { n.memory(op, dst, here, false, regs...) })
			at += floats
		}
		for _, s := range stores {
			s()
		}
		n.ins("ADD", stride, src, src)
		n.ins("ADD", imm(4*width), dst)
	})
	n.end()
}
