package main

import (
	"fmt"
	"slices"
)

// Operations on pairs: the same on both registers.

func (n *neon) three(op three, d, a, b pair) {
	for i := range d {
		n.enc(op.s(d[i], a[i], b[i]))
	}
}

func (n *neon) add(d, a, b pair) { n.three(opFADD, d, a, b) }
func (n *neon) sub(d, a, b pair) { n.three(opFSUB, d, a, b) }
func (n *neon) mul(d, a, b pair) { n.three(opFMUL, d, a, b) }
func (n *neon) div(d, a, b pair) { n.three(opFDIV, d, a, b) }

func (n *neon) neg(d, a pair) {
	for i := range d {
		n.enc(opFNEG.s(d[i], a[i]))
	}
}

func (n *neon) sqrt(d, a pair) {
	for i := range d {
		n.enc(opFSQRT.s(d[i], a[i]))
	}
}

// fma adds a·b to d, and fms subtracts it, rounding once.
func (n *neon) fma(d, a, b pair) { n.lanes("VFMLA", a, b, d) }
func (n *neon) fms(d, a, b pair) { n.lanes("VFMLS", a, b, d) }

// lanes writes an instruction over words that Go's assembler knows, the result last.
func (n *neon) lanes(op string, args ...pair) { n.native(op, v.s4, args) }

// logic writes one over bits.
func (n *neon) logic(op string, args ...pair) { n.native(op, v.b, args) }

func (n *neon) native(op string, name func(v) string, args []pair) {
	for i := range 2 {
		var names []any
		for _, a := range args {
			names = append(names, name(a[i]))
		}
		n.ins(op, names...)
	}
}

// shift writes a shift of words by some bits.
func (n *neon) shift(op string, by int, a, d pair) {
	for i := range d {
		n.ins(op, imm(by), a[i].s4(), d[i].s4())
	}
}

func (n *neon) copy(d, a pair) { n.logic("VMOV", a, d) }

// zero clears a register.
func (n *neon) zero(r v) { n.ins("VEOR", r.b(), r.b(), r.b()) }

// memory is an operand in memory.
func (n *neon) memory(op string, base gp, at int, load bool, regs ...v) {
	name := regs[0].f()
	if len(regs) == 2 {
		name = fmt.Sprintf("(%s, %s)", regs[0].f(), regs[1].f())
	}
	l := line{op: op, base: base, args: []string{name, address(base, at)}}
	if load {
		l.args = []string{address(base, at), name}
	}
	n.lines = append(n.lines, l)
}

func address(base gp, at int) string {
	if at == 0 {
		return fmt.Sprintf("(%v)", base)
	}
	return fmt.Sprintf("%d(%v)", at, base)
}

// loadAt and storeAt move a pair.
func (n *neon) loadAt(base gp, at int) pair {
	p := n.pair()
	n.memory("FLDPQ", base, at, true, p[0], p[1])
	return p
}

func (n *neon) storeAt(p pair, base gp, at int) { n.memory("FSTPQ", base, at, false, p[0], p[1]) }

// advance moves an address on by a number of bytes after what was written since a line:
// as part of the last access to it where none is at a distance, else by an addition.
func (n *neon) advance(base gp, by, since int) {
	last := len(n.lines) - 1
	for last >= since && n.lines[last].base != base {
		last--
	}
	if last >= since {
		l := &n.lines[last]
		if i := slices.Index(l.args, address(base, 0)); i >= 0 {
			l.op += ".P"
			l.args[i] = address(base, by)
			return
		}
	}
	n.ins("ADD", imm(by), base)
}
