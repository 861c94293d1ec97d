package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set: what differs between vectors of 256 bits (AVX2 and
// FMA) and of 512 (AVX-512 F, BW, DQ, VL). A kernel is written once, in terms of
// its methods and of those of avo's context, whose instructions have the same
// names for both widths.
type isa struct {
	*build.Context
	name string // at the end of a function's name
	zmm  bool

	tables map[string]operand.Mem // by name
	labels int
}

func avx2(c *build.Context) *isa {
	return &isa{Context: c, name: "AVX2", tables: map[string]operand.Mem{}}
}

func avx512(c *build.Context) *isa {
	return &isa{Context: c, name: "AVX512", zmm: true, tables: map[string]operand.Mem{}}
}

// vec is a new vector register.
func (a *isa) vec() reg.VecVirtual {
	if a.zmm {
		return a.ZMM()
	}
	return a.YMM()
}

// vecs are n of them.
func (a *isa) vecs(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = a.vec()
	}
	return v
}

// bytes in a vector, and float32 in a vector.
func (a *isa) bytes() int {
	if a.zmm {
		return 64
	}
	return 32
}

func (a *isa) floats() int { return a.bytes() / 4 }

// half is the lower half of a vector register: half as many lanes for conversion
// to or from lanes of twice the size.
func (a *isa) half(v reg.VecVirtual) reg.Register {
	if a.zmm {
		return v.AsY()
	}
	return v.AsX()
}

// function starts a function. Signature and doc follow the name.
func (a *isa) function(name, signature string, doc ...string) {
	a.Function(name + a.name)
	a.SignatureExpr("func" + signature)
	a.Attributes(attr.NOSPLIT)
	a.Pragma("noescape")
	a.Doc(append([]string{name + a.name + " " + doc[0]}, doc[1:]...)...)
}

// end returns from a function.
func (a *isa) end() {
	a.VZEROUPPER()
	a.RET()
}

// base loads the address of a slice's first element.
func (a *isa) base(slice string) reg.GPVirtual {
	return a.Load(a.Param(slice).Base(), a.GP64()).(reg.GPVirtual)
}

// length loads the number of a slice's elements.
func (a *isa) length(slice string) reg.GPVirtual {
	return a.Load(a.Param(slice).Len(), a.GP64()).(reg.GPVirtual)
}

// integer loads an int or a pointer.
func (a *isa) integer(param string) reg.GPVirtual {
	return a.Load(a.Param(param), a.GP64()).(reg.GPVirtual)
}

// param is where an argument lies, and result where result i goes.
func (a *isa) param(name string) operand.Mem { return a.address(a.Param(name)) }
func (a *isa) result(i int) operand.Mem      { return a.address(a.ReturnIndex(i)) }

func (a *isa) address(c gotypes.Component) operand.Mem {
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// spread puts one number of 32 bits into every lane.
func (a *isa) spread(m operand.Mem) reg.VecVirtual {
	v := a.vec()
	a.VBROADCASTSS(m, v)
	return v
}

// constant is a float32 in every lane, in memory.
func (a *isa) constant(f float32) operand.Mem {
	digits := strconv.FormatFloat(float64(f), 'g', -1, 32)
	return a.pattern(strings.NewReplacer(".", "_", "-", "minus_", "+", "").Replace(digits), math.Float32bits(f))
}

// bits is a pattern in every lane, in memory.
func (a *isa) bits(b uint32) operand.Mem { return a.pattern(fmt.Sprintf("%#08x", b), b) }

func (a *isa) pattern(name string, b uint32) operand.Mem {
	both := uint64(b)<<32 | uint64(b)
	return a.table("all_"+name, slices.Repeat([]uint64{both}, a.bytes()/8))
}

// table is read-only data, of which a file has one by that name.
func (a *isa) table(name string, words []uint64) operand.Mem {
	if m, ok := a.tables[name]; ok {
		return m
	}
	m := a.StaticGlobal(name)
	a.DataAttributes(attr.RODATA | attr.NOPTR)
	for _, w := range words {
		a.AppendDatum(operand.U64(w))
	}
	a.tables[name] = m
	return m
}

// near holds a constant in a register where there are 32 of them.
func (a *isa) near(m operand.Mem) operand.Op {
	if a.zmm {
		return a.copy(m)
	}
	return m
}

// copy is a new register with the content of a register or of memory.
func (a *isa) copy(v operand.Op) reg.VecVirtual {
	d := a.vec()
	a.VMOVUPS(v, d)
	return d
}

// zero clears a register.
func (a *isa) zero(v reg.VecVirtual) {
	if a.zmm {
		a.VPXORD(v, v, v)
	} else {
		a.VXORPS(v, v, v)
	}
}

// label makes a label's name unique in its function.
func (a *isa) label(name string) string {
	a.labels++
	return fmt.Sprintf("%s%d", name, a.labels)
}

func (a *isa) jump(label string) operand.LabelRef { return operand.LabelRef(label) }
