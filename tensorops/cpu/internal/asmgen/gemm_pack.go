package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const gemmPackDoc = `Packing of whole strips, for AVX2 and AVX-512 alike.

transposeN: eight rows of the source, eight numbers of each, turn into eight
numbers of each k in three rounds: unpack pairs, unpack fours, exchange halves.
copyN: the numbers of a strip lie side by side already; those 32 rows further on are on their way to the
second-level cache meanwhile.
widen16: bfloat16 becomes the upper half of a float32.
decodeInt8 and decodeNF4: blocks of 64 codes become float32, times the block's scale; see package quant.
The 16 values of NF4 are in two registers, of which bit 3 of a code chooses one.`

// gemmPacks writes the packing loops, which AVX-512 uses as well.
func gemmPacks(c *build.Context) {
	for _, w := range []int{4, 6, 8} {
		gemmTranspose(c, w)
	}
	for _, w := range []int{6, 12, 16, 32} {
		gemmCopy(c, w)
	}
	gemmWiden(c)
	gemmDecodeInt8(c)
	gemmDecodeNF4(c)
}

// gemmWiden turns bfloat16 into float32.
func gemmWiden(c *build.Context) {
	c.Function("widen16")
	c.SignatureExpr("func(dst *float32, src *uint16, sixteens int)")
	c.Pragma("noescape")
	c.Doc("widen16 stores 16·sixteens numbers of bfloat16 as float32.")
	dst := c.Load(c.Param("dst"), c.GP64())
	src := c.Load(c.Param("src"), c.GP64())
	sixteens := c.Load(c.Param("sixteens"), c.GP64())
	c.Label("loop")
	for i := range 2 {
		v := c.YMM()
		c.VPMOVZXWD(operand.Mem{Base: src, Disp: 16 * i}, v)
		c.VPSLLD(operand.U8(16), v, v)
		c.VMOVDQU(v, operand.Mem{Base: dst, Disp: 32 * i})
	}
	c.ADDQ(operand.U8(32), src)
	c.ADDQ(operand.U8(64), dst)
	c.DECQ(sixteens)
	c.JNZ(operand.LabelRef("loop"))
	c.VZEROUPPER()
	c.RET()
}

// gemmTranspose packs eight rows of the source, or fewer, each contiguous along
// k, eight k at a time. Rows past the count are the last row again: what is packed
// there is not used.
func gemmTranspose(c *build.Context, width int) {
	c.Function(fmt.Sprintf("transpose%d", width))
	c.SignatureExpr("func(dst *float32, strip int, src *float32, stride, eights, rows int)")
	c.Pragma("noescape")
	c.Doc(fmt.Sprintf("transpose%d stores, for 8·eights consecutive k, %d numbers at dst + k·strip: element j from", width, width),
		"src + j·stride + k, where j ≥ rows repeats the last row. strip and stride are in bytes.")
	dst := c.Load(c.Param("dst"), c.GP64())
	strip := c.Load(c.Param("strip"), c.GP64())
	src := c.Load(c.Param("src"), c.GP64())
	stride := c.Load(c.Param("stride"), c.GP64())
	eights := c.Load(c.Param("eights"), c.GP64())
	rows := c.Load(c.Param("rows"), c.GP64())

	lanes := min(width+width%4, 8) // rows that are read
	p := make([]reg.GPVirtual, width)
	zero := c.GP64()
	c.XORQ(zero, zero)
	for j := range p {
		p[j] = c.GP64()
		if j == 0 {
			c.MOVQ(src, p[0])
			continue
		}
		step := c.GP64()
		c.MOVQ(stride, step)
		c.CMPQ(rows, operand.U8(j))
		c.CMOVQLE(zero, step)
		c.MOVQ(p[j-1], p[j])
		c.ADDQ(step, p[j])
	}
	y := make([]reg.VecVirtual, 8)
	c.Label("loop")
	for j := range 8 {
		y[j] = c.YMM()
		if j < width {
			c.VMOVUPS(operand.Mem{Base: p[j]}, y[j])
		} else if j < lanes {
			c.VXORPS(y[j], y[j], y[j])
		}
	}
	for j := range p {
		c.ADDQ(operand.U8(32), p[j])
	}
	// Pairs, then fours.
	t := make([]reg.VecVirtual, 8)
	for j := 0; j < lanes; j += 4 {
		for i := range 2 {
			t[j+2*i], t[j+2*i+1] = c.YMM(), c.YMM()
			c.VUNPCKLPS(y[j+2*i+1], y[j+2*i], t[j+2*i])
			c.VUNPCKHPS(y[j+2*i+1], y[j+2*i], t[j+2*i+1])
		}
		for i := range 2 {
			y[j+2*i], y[j+2*i+1] = c.YMM(), c.YMM()
			c.VUNPCKLPD(t[j+2+i], t[j+i], y[j+2*i])
			c.VUNPCKHPD(t[j+2+i], t[j+i], y[j+2*i+1])
		}
	}
	// y[i] holds rows 0 to 3 of k = i (lower half) and k = i+4 (upper half),
	// y[4+i] rows 4 to 7.
	out := operand.Mem{Base: dst}
	for half := range 2 {
		for i := range 4 {
			switch {
			case width == 8:
				v := c.YMM()
				if half == 0 {
					c.VINSERTF128(operand.U8(1), y[4+i].AsX(), y[i], v)
				} else {
					c.VPERM2F128(operand.U8(0x31), y[4+i], y[i], v)
				}
				c.VMOVUPS(v, out)
			default:
				lo, hi := y[i].AsX(), reg.VecVirtual(nil)
				if half == 1 {
					x := c.XMM()
					c.VEXTRACTF128(operand.U8(1), y[i], x)
					lo = x
				}
				c.VMOVUPS(lo, out)
				if width == 6 {
					hi = c.XMM()
					if half == 0 {
						c.VMOVAPS(y[4+i].AsX(), hi)
					} else {
						c.VEXTRACTF128(operand.U8(1), y[4+i], hi)
					}
					m := out
					m.Disp = 16
					c.VMOVLPS(hi, m)
				}
			}
			c.ADDQ(strip, dst)
		}
	}
	c.DECQ(eights)
	c.JNZ(operand.LabelRef("loop"))
	c.VZEROUPPER()
	c.RET()
}

// rowsAhead is where the row is that lies 32 further on.
func rowsAhead(c *build.Context, src, stride reg.Register) reg.GPVirtual {
	ahead := c.GP64()
	c.MOVQ(stride, ahead)
	c.SHLQ(operand.U8(5), ahead)
	c.ADDQ(src, ahead)
	return ahead
}

// gemmCopy packs a whole strip whose elements are contiguous.
func gemmCopy(c *build.Context, width int) {
	c.Function(fmt.Sprintf("copy%d", width))
	c.SignatureExpr("func(dst, src *float32, stride, depth int)")
	c.Pragma("noescape")
	c.Doc(fmt.Sprintf("copy%d stores, for each k below depth, the %d numbers at src + k·stride (in bytes).", width, width))
	dst := c.Load(c.Param("dst"), c.GP64())
	src := c.Load(c.Param("src"), c.GP64())
	stride := c.Load(c.Param("stride"), c.GP64())
	depth := c.Load(c.Param("depth"), c.GP64())
	ahead := rowsAhead(c, src, stride)
	c.Label("loop")
	c.PREFETCHT1(operand.Mem{Base: ahead})
	c.ADDQ(stride, ahead)
	var stores []func()
	for at := 0; at < width; {
		in, out := operand.Mem{Base: src, Disp: 4 * at}, operand.Mem{Base: dst, Disp: 4 * at}
		switch left := width - at; {
		case left >= 8:
			v := c.YMM()
			c.VMOVUPS(in, v)
			stores = append(stores, func() { c.VMOVUPS(v, out) })
			at += 8
		case left >= 4:
			v := c.XMM()
			c.VMOVUPS(in, v)
			stores = append(stores, func() { c.VMOVUPS(v, out) })
			at += 4
		default:
			v := c.XMM()
			c.VMOVSD(in, v)
			stores = append(stores, func() { c.VMOVSD(v, out) })
			at += 2
		}
	}
	for _, s := range stores {
		s()
	}
	c.ADDQ(stride, src)
	c.ADDQ(operand.U8(4*width), dst)
	c.DECQ(depth)
	c.JNZ(operand.LabelRef("loop"))
	c.VZEROUPPER()
	c.RET()
}
