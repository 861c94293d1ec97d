package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/ir"
)

// neon writes the assembly of arm64, which avo does not know, as text. Its vectors have 128
// bits: a kernel works on pairs of them, which take the place of one of AVX2 lane by lane,
// so that every sum and every rounding is the same.
//
// All vector registers belong to the callee, as do R0 to R15 and R19 to R25; the others
// have uses of their own in Go.
type neon struct {
	functions []*function
	numbers   []uint32 // of the table of constants
	tables    []uint32 // numbers that differ from lane to lane
	labels    int

	*function // that is being written
	vUsed     [32]bool
	gpUsed    [32]bool
	table     gp // address of the constants
}

// function is one function's signature, code, and need of the stack.
type function struct {
	ir    *ir.Function
	lines []line
	frame int
}

// line is a label, or an instruction with its operands.
type line struct {
	label string
	op    string
	args  []string
	base  gp // of a memory operand, -1 if there is none
	word  uint32
	text  string // of a word, or a comment
}

// gp is a general register.
type gp int

func (r gp) String() string { return fmt.Sprintf("R%d", int(r)) }

const noReg gp = -1

// pair is two vector registers: the lanes 0 to 3 and 4 to 7 of one of AVX2.
type pair [2]v

// spread is a pair of the same register, for what is equal in all lanes.
func spread(r v) pair { return pair{r, r} }

// start begins a function. Signature and doc follow the name.
func (n *neon) start(name, signature string, doc ...string) {
	sig, err := gotypes.ParseSignature("func" + signature)
	if err != nil {
		panic(err)
	}
	f := ir.NewFunction(name)
	f.SetSignature(sig)
	f.Doc = append([]string{name + " " + doc[0]}, doc[1:]...)
	f.AddPragma("noescape")
	n.function = &function{ir: f}
	n.functions = append(n.functions, n.function)
	n.vUsed, n.gpUsed, n.table = [32]bool{}, [32]bool{}, noReg
	for _, r := range []int{16, 17, 18, 26, 27, 28, 29, 30, 31} {
		n.gpUsed[r] = true
	}
}

// gp is a general register that is free; it stays taken to the function's end.
func (n *neon) gp() gp {
	for r, used := range n.gpUsed {
		if !used {
			n.gpUsed[r] = true
			return gp(r)
		}
	}
	panic(n.ir.Name + ": out of general registers")
}

// v is a vector register that is free.
func (n *neon) v() v {
	for r, used := range n.vUsed {
		if !used {
			n.vUsed[r] = true
			return v(r)
		}
	}
	panic(n.ir.Name + ": out of vector registers")
}

// vs are count of them.
func (n *neon) vs(count int) []v {
	r := make([]v, count)
	for i := range r {
		r[i] = n.v()
	}
	return r
}

func (n *neon) pair() pair { return pair{n.v(), n.v()} }

// free gives registers back.
func (n *neon) free(pairs ...pair) {
	for _, p := range pairs {
		n.vUsed[p[0]], n.vUsed[p[1]] = false, false
	}
}

// scoped frees the vector registers that f takes.
func (n *neon) scoped(f func()) {
	before := n.vUsed
	f()
	n.vUsed = before
}

// ins writes an instruction; one with an operand in memory to go along is memory's.
func (n *neon) ins(op string, args ...any) {
	l := line{op: op, base: noReg}
	for _, a := range args {
		l.args = append(l.args, fmt.Sprint(a))
	}
	n.lines = append(n.lines, l)
}

// enc writes words.
func (n *neon) enc(words ...word) {
	for _, w := range words {
		n.lines = append(n.lines, line{op: "WORD", base: noReg, word: w.bits, text: w.text})
	}
}

func (n *neon) comment(text string) { n.lines = append(n.lines, line{text: text, base: noReg}) }

// label makes a label's name unique in its file.
func (n *neon) label(name string) string {
	n.labels++
	return fmt.Sprintf("%s%d", name, n.labels)
}

func (n *neon) mark(label string) { n.lines = append(n.lines, line{label: label, base: noReg}) }

// imm is an immediate operand.
func imm(i int) string { return fmt.Sprintf("$%d", i) }

// component is where an argument, or a part of one, lies.
func component(c gotypes.Component) string {
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr.Asm()
}

func (n *neon) param(name string) gotypes.Component { return n.ir.Signature.Params().Lookup(name) }

// base loads the address of a slice's first element.
func (n *neon) base(slice string) gp {
	r := n.gp()
	n.ins("MOVD", component(n.param(slice).Base()), r)
	return r
}

// length loads the number of a slice's elements.
func (n *neon) length(slice string) gp {
	r := n.gp()
	n.ins("MOVD", component(n.param(slice).Len()), r)
	return r
}

// integer loads an int or a pointer.
func (n *neon) integer(name string) gp {
	r := n.gp()
	n.ins("MOVD", component(n.param(name)), r)
	return r
}

// scalar puts a float32 argument into every lane.
func (n *neon) scalar(name string) v {
	r := n.v()
	n.ins("FMOVS", component(n.param(name)), r.f())
	n.ins("VDUP", fmt.Sprintf("V%d.S[0]", r), r.s4())
	return r
}

// result stores a float32 or float64 as a result.
func (n *neon) result(op string, i int, r v) {
	n.ins(op, r.f(), component(n.ir.Signature.Results().At(i)))
}

// constant is the place of a number in the table, where it stands in eight lanes.
func (n *neon) constant(bits uint32) string {
	if n.table == noReg {
		panic(n.ir.Name + ": constants is not called")
	}
	i := slices.Index(n.numbers, bits)
	if i < 0 {
		i = len(n.numbers)
		n.numbers = append(n.numbers, bits)
	}
	if i > 31 {
		panic(n.ir.Name + ": too many constants for the offset of a load of two registers")
	}
	if i == 0 {
		return fmt.Sprintf("(%v)", n.table)
	}
	return fmt.Sprintf("%d(%v)", 32*i, n.table)
}

// constants loads the table's address.
func (n *neon) constants() {
	n.table = n.gp()
	n.ins("MOVD", "$numbers<>(SB)", n.table)
}

// number is a register that holds a constant for the whole function.
func (n *neon) number(f float64) v { return n.bits(math.Float32bits(float32(f))) }

func (n *neon) bits(b uint32) v {
	r := n.v()
	n.ins("FMOVQ", n.constant(b), r.f())
	return r
}

// fresh is a pair with a constant in it, to be added to: one load from the table in place
// of a move for each, since loads are what these loops have to spare.
func (n *neon) fresh(f float64) pair {
	p := n.pair()
	n.renew(p, f)
	return p
}

func (n *neon) renew(p pair, f float64) {
	n.ins("FLDPQ", n.constant(math.Float32bits(float32(f))), fmt.Sprintf("(%s, %s)", p[0].f(), p[1].f()))
}

// end returns from the function.
func (n *neon) end() { n.ins("RET") }

// file is the text of all functions and their constants.
func (n *neon) file() []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated by asmgen. DO NOT EDIT.\n\n#include \"textflag.h\"\n")
	for _, f := range n.functions {
		fmt.Fprintf(&b, "\n// %s\nTEXT ·%s(SB), NOSPLIT, $%d-%d\n", f.ir.Stub(), f.ir.Name, f.frame, f.ir.ArgumentBytes())
		for _, l := range f.lines {
			b.WriteString(l.String())
		}
	}
	for i, bits := range n.numbers {
		both := uint64(bits)<<32 | uint64(bits)
		b.WriteString("\n")
		for j := range 4 {
			fmt.Fprintf(&b, "DATA numbers<>+%d(SB)/8, $%#016x\n", 32*i+8*j, both)
		}
	}
	if len(n.numbers) > 0 {
		fmt.Fprintf(&b, "GLOBL numbers<>(SB), RODATA|NOPTR, $%d\n", 32*len(n.numbers))
	}
	for i := 0; i < len(n.tables); i += 2 {
		fmt.Fprintf(&b, "DATA tables<>+%d(SB)/8, $%#016x\n", 4*i, uint64(n.tables[i+1])<<32|uint64(n.tables[i]))
	}
	if len(n.tables) > 0 {
		fmt.Fprintf(&b, "GLOBL tables<>(SB), RODATA|NOPTR, $%d\n", 4*len(n.tables))
	}
	return b.Bytes()
}

func (l line) String() string {
	switch {
	case l.label != "":
		return fmt.Sprintf("\n%s:\n", l.label)
	case l.op == "WORD":
		return fmt.Sprintf("\tWORD    $%#08x // %s\n", l.word, l.text)
	case l.op == "":
		return fmt.Sprintf("\t// %s\n", l.text)
	case len(l.args) == 0:
		return fmt.Sprintf("\t%s\n", l.op)
	}
	return fmt.Sprintf("\t%-7s %s\n", l.op, strings.Join(l.args, ", "))
}
