package main

import "fmt"

// v is a vector register of arm64, V0 to V31.
type v int

func (r v) s4() string { return fmt.Sprintf("V%d.S4", r) }
func (r v) b() string  { return fmt.Sprintf("V%d.B16", r) }
func (r v) h4() string { return fmt.Sprintf("V%d.H4", r) }
func (r v) h8() string { return fmt.Sprintf("V%d.H8", r) }
func (r v) f() string  { return fmt.Sprintf("F%d", r) }

// word is an instruction that Go's assembler does not know: its bits, and its text as
// GNU's disassembler writes it.
type word struct {
	bits uint32
	text string
}

// Instructions over three vectors of floating-point numbers ("Advanced SIMD three same" in
// the Arm Architecture Reference Manual, C4.1): Rm in bits 16 to 20, Rn in 5 to 9, Rd in 0
// to 4. Bit 22, sz, is set for float64.
type three struct {
	name string
	bits uint32 // with Q: 128 bits
}

var (
	opFADD   = three{"fadd", 0x4e20d400}
	opFSUB   = three{"fsub", 0x4ea0d400}
	opFMUL   = three{"fmul", 0x6e20dc00}
	opFDIV   = three{"fdiv", 0x6e20fc00}
	opFMAX   = three{"fmax", 0x4e20f400}
	opFMIN   = three{"fmin", 0x4ea0f400}
	opFMAXNM = three{"fmaxnm", 0x4e20c400}
	opFCMEQ  = three{"fcmeq", 0x4e20e400}
	opFCMGT  = three{"fcmgt", 0x6ea0e400}
	opFCMGE  = three{"fcmge", 0x6e20e400}
	opUMAX   = three{"umax", 0x6ea06400} // of words alone
)

func (o three) s(d, n, m v) word { return o.of(d, n, m, 0, "4s") }
func (o three) d(d, n, m v) word { return o.of(d, n, m, 1, "2d") }

func (o three) of(d, n, m v, sz uint32, lanes string) word {
	return word{o.bits | sz<<22 | uint32(m)<<16 | uint32(n)<<5 | uint32(d),
		fmt.Sprintf("%s v%d.%s, v%d.%s, v%d.%s", o.name, d, lanes, n, lanes, m, lanes)}
}

// Instructions over one vector ("two-register miscellaneous"), float32.
type two struct {
	name string
	bits uint32
}

var (
	opFNEG   = two{"fneg", 0x6ea0f800}
	opFABS   = two{"fabs", 0x4ea0f800}
	opFSQRT  = two{"fsqrt", 0x6ea1f800}
	opFRINTM = two{"frintm", 0x4e219800}
	opFCVTZU = two{"fcvtzu", 0x6ea1b800}
)

func (o two) s(d, n v) word {
	return word{o.bits | uint32(n)<<5 | uint32(d), fmt.Sprintf("%s v%d.4s, v%d.4s", o.name, d, n)}
}

// fmlaElement adds n·m[lane] to d ("vector × indexed element"): the lane's bits are H (11)
// and L (21), and M (20) is the fifth bit of m.
func fmlaElement(d, n, m v, lane int) word {
	return word{0x4f801000 | uint32(lane>>1)<<11 | uint32(lane&1)<<21 | uint32(m)<<16 | uint32(n)<<5 | uint32(d),
		fmt.Sprintf("fmla v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, lane)}
}

// pairSum adds the two lowest lanes ("scalar pairwise").
func pairSum(d, n v) word {
	return word{0x7e30d800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("faddp s%d, v%d.2s", d, n)}
}

func pairSumDouble(d, n v) word {
	return word{0x7e70d800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("faddp d%d, v%d.2d", d, n)}
}

// pairMax is the larger of the two lowest lanes; a NaN is passed over.
func pairMax(d, n v) word {
	return word{0x7e30c800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("fmaxnmp s%d, v%d.2s", d, n)}
}

// pairLargest is the larger of the two lowest words, unsigned.
func pairLargest(d, n v) word {
	return word{0x2ea0a400 | uint32(n)<<16 | uint32(n)<<5 | uint32(d), fmt.Sprintf("umaxp v%d.2s, v%d.2s, v%d.2s", d, n, n)}
}

// product32 multiplies words of 32 bits.
func product32(d, n, m v) word {
	return word{0x4ea09c00 | uint32(m)<<16 | uint32(n)<<5 | uint32(d), fmt.Sprintf("mul v%d.4s, v%d.4s, v%d.4s", d, n, m)}
}

// fraction16 turns words into float32 and divides them by 2^16.
func fraction16(d, n v) word {
	return word{0x6f30e400 | uint32(n)<<5 | uint32(d), fmt.Sprintf("ucvtf v%d.4s, v%d.4s, #16", d, n)}
}

// above0 sets all bits of the words whose float32 is above 0.
func above0(d, n v) word {
	return word{0x4ea0c800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("fcmgt v%d.4s, v%d.4s, #0.0", d, n)}
}

// widenDouble turns the two lower (or upper) float32 into float64.
func widenDouble(d, n v, upper bool) word {
	if upper {
		return word{0x4e617800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("fcvtl2 v%d.2d, v%d.4s", d, n)}
	}
	return word{0x0e617800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("fcvtl v%d.2d, v%d.2s", d, n)}
}

// shiftWiden turns the four lower (or upper) words of 16 bits into the upper halves of 32.
func shiftWiden(d, n v, upper bool) word {
	if upper {
		return word{0x6e613800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("shll2 v%d.4s, v%d.8h, #16", d, n)}
	}
	return word{0x2e613800 | uint32(n)<<5 | uint32(d), fmt.Sprintf("shll v%d.4s, v%d.4h, #16", d, n)}
}

// upperHalves packs the upper halves of four words into the lower (or upper) half of d.
func upperHalves(d, n v, upper bool) word {
	if upper {
		return word{0x4f108400 | uint32(n)<<5 | uint32(d), fmt.Sprintf("shrn2 v%d.8h, v%d.4s, #16", d, n)}
	}
	return word{0x0f108400 | uint32(n)<<5 | uint32(d), fmt.Sprintf("shrn v%d.4h, v%d.4s, #16", d, n)}
}

// product64 multiplies the two lower (or upper) words of 32 bits to 64 bits.
func product64(d, n, m v, upper bool) word {
	if upper {
		return word{0x6ea0c000 | uint32(m)<<16 | uint32(n)<<5 | uint32(d), fmt.Sprintf("umull2 v%d.2d, v%d.4s, v%d.4s", d, n, m)}
	}
	return word{0x2ea0c000 | uint32(m)<<16 | uint32(n)<<5 | uint32(d), fmt.Sprintf("umull v%d.2d, v%d.2s, v%d.2s", d, n, m)}
}

// notLess sets all bits of the words of n that are at least those of m, unsigned.
func notLess(d, n, m v) word {
	return word{0x6ea03c00 | uint32(m)<<16 | uint32(n)<<5 | uint32(d), fmt.Sprintf("cmhs v%d.4s, v%d.4s, v%d.4s", d, n, m)}
}

// storePast stores a pair of registers past the caches.
func storePast(a, b v, base gp) word {
	return word{0xac000000 | uint32(b)<<10 | uint32(base)<<5 | uint32(a), fmt.Sprintf("stnp q%d, q%d, [x%d]", a, b, base)}
}
