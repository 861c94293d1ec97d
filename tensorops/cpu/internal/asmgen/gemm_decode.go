package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// decodeBlock is how many codes have a scale: Block of package quant.
const decodeBlock = 64

// nf4Values are the values of NF4, as in package quant.
var nf4Values = [16]float32{
	-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
	-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
}

// gemmDecode writes a function that decodes blocks of so many bytes of codes.
func gemmDecode(c *build.Context, name, doc string, codeBytes int, before func(), block func(dst, codes reg.Register, scale reg.VecVirtual)) {
	c.Function(name)
	c.SignatureExpr("func(dst *float32, codes *byte, scales *float32, blocks int)")
	c.Pragma("noescape")
	c.Doc(doc)
	dst := c.Load(c.Param("dst"), c.GP64())
	codes := c.Load(c.Param("codes"), c.GP64())
	scales := c.Load(c.Param("scales"), c.GP64())
	blocks := c.Load(c.Param("blocks"), c.GP64())
	before()
	c.Label("loop")
	scale := c.YMM()
	c.VBROADCASTSS(operand.Mem{Base: scales}, scale)
	block(dst, codes, scale)
	c.ADDQ(operand.U32(4*decodeBlock), dst)
	c.ADDQ(operand.U8(codeBytes), codes)
	c.ADDQ(operand.U8(4), scales)
	c.DECQ(blocks)
	c.JNZ(operand.LabelRef("loop"))
	c.VZEROUPPER()
	c.RET()
}

func gemmDecodeInt8(c *build.Context) {
	gemmDecode(c, "decodeInt8", "decodeInt8 stores the 64·blocks numbers of blocks of int8: integer · scale.", decodeBlock, func() {},
		func(dst, codes reg.Register, scale reg.VecVirtual) {
			for at := 0; at < decodeBlock; at += 8 {
				v := c.YMM()
				c.VPMOVSXBD(operand.Mem{Base: codes, Disp: at}, v)
				c.VCVTDQ2PS(v, v)
				c.VMULPS(scale, v, v)
				c.VMOVUPS(v, operand.Mem{Base: dst, Disp: 4 * at})
			}
		})
}

func gemmDecodeNF4(c *build.Context) {
	var tables [2]reg.VecVirtual // values 0 to 7, and 8 to 15
	values := c.StaticGlobal("nf4_values")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i, v := range nf4Values {
		c.AddDatum(4*i, operand.U32(math.Float32bits(v)))
	}
	gemmDecode(c, "decodeNF4", "decodeNF4 stores the 64·blocks numbers of blocks of NF4: value · scale. A byte's upper half comes first.",
		decodeBlock/2, func() {
			for i := range tables {
				tables[i] = c.YMM()
				c.VMOVUPS(values.Offset(32*i), tables[i])
			}
		}, func(dst, codes reg.Register, scale reg.VecVirtual) {
			for at := 0; at < decodeBlock/2; at += 8 {
				bytes := c.YMM()
				c.VPMOVZXBD(operand.Mem{Base: codes, Disp: at}, bytes)
				upper := c.YMM()
				c.VPSRLD(operand.U8(4), bytes, upper)
				var found [2]reg.VecVirtual // of the upper and the lower halves of the bytes
				for i, code := range []reg.VecVirtual{upper, bytes} {
					// A permutation reads the lowest three bits of a code; its bit 3 becomes a sign.
					low, high, sign := c.YMM(), c.YMM(), c.YMM()
					c.VPERMPS(tables[0], code, low)
					c.VPERMPS(tables[1], code, high)
					c.VPSLLD(operand.U8(28), code, sign)
					c.VBLENDVPS(sign, high, low, low)
					c.VMULPS(scale, low, low)
					found[i] = low
				}
				first, second, v := c.YMM(), c.YMM(), c.YMM()
				c.VUNPCKLPS(found[1], found[0], first)
				c.VUNPCKHPS(found[1], found[0], second)
				c.VPERM2F128(operand.U8(0x20), second, first, v)
				c.VMOVUPS(v, operand.Mem{Base: dst, Disp: 8 * at})
				c.VPERM2F128(operand.U8(0x31), second, first, v)
				c.VMOVUPS(v, operand.Mem{Base: dst, Disp: 8*at + 32})
			}
		})
}
