package main

import "fmt"

// stream is a slice that a loop goes along.
type stream struct {
	at   gp
	in   bool
	out  bool
	when gp // of an output: what is 0 where it stays as it is, or noReg
}

func (n *neon) in(slice string) *stream  { return &stream{at: n.base(slice), in: true, when: noReg} }
func (n *neon) out(slice string) *stream { return &stream{at: n.base(slice), out: true, when: noReg} }
func (n *neon) inOut(slice string) *stream {
	return &stream{at: n.base(slice), in: true, out: true, when: noReg}
}

// access loads and stores pairs of elements of streams.
type access struct {
	*neon
	place func(s *stream) (gp, int)
}

func (a *access) load(s *stream) pair {
	base, at := a.place(s)
	return a.loadAt(base, at)
}

func (a *access) store(p pair, s *stream) {
	base, at := a.place(s)
	a.storeAt(p, base, at)
}

// each loops over n elements of streams, eight at a time. The last of them, where there are
// fewer, go through the stack: body is the same code for all, so that an element's result
// does not depend on its place.
func (n *neon) each(count gp, streams []*stream, body func(a *access)) {
	n.blocks(count, 1, nil, streams, func(_ int, a *access) { body(a) })
}

// blocks loops over n elements, a block of count parts of eight at a time. Elements that
// the last block lacks are what fill says, where it is not nil.
func (n *neon) blocks(count gp, parts int, fill *v, streams []*stream, body func(part int, a *access)) {
	size := 8 * parts
	loop, rest, done := n.label("loop"), n.label("rest"), n.label("done")
	n.ins("SUBS", imm(size), count, count)
	n.ins("BLT", rest)
	n.mark(loop)
	n.scoped(func() {
		for i := range parts {
			since := len(n.lines)
			body(i, &access{n, func(s *stream) (gp, int) { return s.at, 0 }})
			for _, s := range streams {
				if s.when != noReg { // the last access may not happen
					n.ins("ADD", imm(32), s.at)
					continue
				}
				n.advance(s.at, 32, since)
			}
		}
	})
	n.ins("SUBS", imm(size), count, count)
	n.ins("BGE", loop)
	n.mark(rest)
	n.ins("ADDS", imm(size), count, count)
	n.ins("BEQ", done)
	n.last(count, parts, fill, streams, body)
	n.mark(done)
}

// last is the block at the end, of count < 8·parts elements.
func (n *neon) last(count gp, parts int, fill *v, streams []*stream, body func(part int, a *access)) {
	size := 32 * parts
	n.frame = max(n.frame, size*len(streams))
	slot := map[*stream]int{}
	for i, s := range streams {
		slot[s] = size * i
	}
	before := n.gpUsed
	stack, index, word, place := n.gp(), n.gp(), n.gp(), n.gp()
	n.ins("MOVD", fmt.Sprintf("$room-%d(SP)", size*len(streams)), stack)
	if fill != nil {
		for _, s := range streams {
			for at := 0; at < size; at += 32 {
				n.storeAt(spread(*fill), stack, slot[s]+at)
			}
		}
	}
	// words moves the elements of the streams, one after the other.
	words := func(move func(s *stream)) {
		loop := n.label("word")
		n.ins("MOVD", count, index)
		n.mark(loop)
		n.ins("SUB", imm(1), index, index)
		n.ins("ADD", fmt.Sprintf("%v<<2", index), stack, place)
		for _, s := range streams {
			move(s)
		}
		n.ins("CBNZ", index, loop)
	}
	element := func(s *stream) string { return fmt.Sprintf("(%v)(%v<<2)", s.at, index) }
	words(func(s *stream) {
		if s.in {
			n.ins("MOVWU", element(s), word)
			n.ins("MOVW", word, address(place, slot[s]))
		}
	})
	n.scoped(func() {
		for i := range parts {
			body(i, &access{n, func(s *stream) (gp, int) { return stack, slot[s] + 32*i }})
		}
	})
	some := false
	for _, s := range streams {
		some = some || s.out
	}
	if some {
		words(func(s *stream) {
			if !s.out {
				return
			}
			kept := ""
			if s.when != noReg {
				kept = n.label("kept")
				n.ins("CBZ", s.when, kept)
			}
			n.ins("MOVWU", address(place, slot[s]), word)
			n.ins("MOVW", word, element(s))
			if kept != "" {
				n.mark(kept)
			}
		})
	}
	n.gpUsed = before
}

// repeat loops over n elements, a multiple of step, at least one of them; body goes along
// its addresses itself.
func (n *neon) repeat(count gp, step int, body func()) {
	loop := n.label("loop")
	n.mark(loop)
	n.scoped(body)
	n.ins("SUBS", imm(step), count, count)
	n.ins("BNE", loop)
}

// goOn moves addresses on after each of them was used since a line.
func (n *neon) goOn(by, since int, bases ...gp) {
	for _, b := range bases {
		n.advance(b, by, since)
	}
}
