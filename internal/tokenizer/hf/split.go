package hf

import (
	"bytes"
	"unicode/utf8"
)

// part is a step of splitting a text into words. It passes the pieces that it makes to the next
// step. at is the position of the piece in the text of w.source. first says that the piece starts
// the text. Pieces are valid UTF-8 and not empty.
type part interface {
	piece(w *work, text []byte, at int, first bool)
}

// step makes a part that passes its results to the next one. One goroutine at a time may use a
// part.
type step func(next part) part

// words encodes pieces.
type words struct{ m model }

func (e words) piece(w *work, text []byte, at int, _ bool) {
	w.word = at
	w.out = e.m.encode(w, w.out, text)
}

// scan splits by a pattern that is known.
type scan struct {
	next  part
	chars *table
	s     scanner
}

func (s *scan) piece(w *work, text []byte, at int, first bool) {
	for len(text) > 0 {
		n := s.s(s.chars, text)
		s.next.piece(w, text[:n], at, first)
		text, at, first = text[n:], at+n, false
	}
}

// alone makes a piece of each character that has a property, or of each run of them.
type alone struct {
	next  part
	chars *table
	mask  uint32
	runs  bool
}

func (a *alone) piece(w *work, text []byte, at int, first bool) {
	for len(text) > 0 {
		p, n := a.chars.next(text)
		if match := p&a.mask != 0; !match || a.runs {
			n = a.chars.run(text, n, a.mask, match)
		}
		a.next.piece(w, text[:n], at, first)
		text, at, first = text[n:], at+n, false
	}
}

// finder finds what a text is split at.
type finder interface {
	each(w *work, text []byte, found func(from, to int))
}

// literal finds a string.
type literal []byte

func (l literal) each(_ *work, text []byte, found func(from, to int)) {
	for at := 0; ; {
		i := bytes.Index(text[at:], l)
		if i < 0 {
			return
		}
		found(at+i, at+i+len(l))
		at += i + len(l)
	}
}

// having finds the characters with a property.
type having struct {
	chars *table
	mask  uint32
}

func (h having) each(_ *work, text []byte, found func(from, to int)) {
	for at := 0; at < len(text); {
		p, size := h.chars.next(text[at:])
		if p&h.mask != 0 {
			found(at, at+size)
		}
		at += size
	}
}

// wordsAndSigns finds \w+|[^\w\s]+ of Rust's regular expressions.
type wordsAndSigns struct{ chars *table }

func (f wordsAndSigns) each(_ *work, text []byte, found func(from, to int)) {
	for at := 0; at < len(text); {
		p, size := f.chars.next(text[at:])
		from := at
		switch {
		case p&propWord != 0:
			at = f.chars.run(text, at, propWord, true)
		case p&propSpace == 0:
			at = f.chars.run(text, at, propWord|propSpace, false)
		default:
			at += size
			continue
		}
		found(from, at)
	}
}

// split splits at what a finder finds, by one of the library's behaviors.
type split struct {
	next     part
	find     finder
	invert   bool
	behavior behavior
	spans    []span
}

type behavior string

const (
	isolated   behavior = "Isolated"
	removed    behavior = "Removed"
	contiguous behavior = "Contiguous"
	toPrevious behavior = "MergedWithPrevious"
	toNext     behavior = "MergedWithNext"
)

// span is a part of a piece, and whether it is to be split at.
type span struct {
	from, to int
	match    bool
}

func (s *split) piece(w *work, text []byte, at int, first bool) {
	spans, done := s.spans[:0], 0
	s.find.each(w, text, func(from, to int) {
		if done != from {
			spans = append(spans, span{done, from, s.invert})
		}
		spans = append(spans, span{from, to, !s.invert})
		done = to
	})
	if done != len(text) {
		spans = append(spans, span{done, len(text), s.invert})
	}
	spans = s.behavior.merge(spans)
	s.spans = nil // a part may be behind itself only by another value, but a piece may be huge
	for _, p := range spans {
		if p.from < p.to {
			s.next.piece(w, text[p.from:p.to], at+p.from, first && p.from == 0)
		}
	}
	if cap(spans) <= maxKeptSymbols {
		s.spans = spans
	}
}

// merge joins spans in place as a behavior says.
func (b behavior) merge(spans []span) []span {
	out, previous := spans[:0], false
	switch b {
	case removed:
		for _, s := range spans {
			if !s.match {
				out = append(out, s)
			}
		}
		return out
	case contiguous, toPrevious:
		for _, s := range spans {
			join := b == contiguous && s.match == previous || b == toPrevious && s.match && !previous
			previous = s.match
			if join && len(out) > 0 {
				out[len(out)-1].to = s.to
			} else {
				out = append(out, s)
			}
		}
		return out
	case toNext: // from the end
		at := len(spans)
		for i := len(spans) - 1; i >= 0; i-- {
			s := spans[i]
			join := s.match && !previous && at < len(spans)
			previous = s.match
			if join {
				spans[at].from = s.from
			} else {
				at--
				spans[at] = s
			}
		}
		return spans[at:]
	}
	return spans
}

// spaceBefore puts a space in front of a piece that has none.
type spaceBefore struct {
	next part
	text []byte
}

func (s *spaceBefore) piece(w *work, text []byte, at int, first bool) {
	if text[0] == ' ' {
		s.next.piece(w, text, at, first)
		return
	}
	s.text = append(append(s.text[:0], ' '), text...)
	if w.on {
		defer w.change(&at, text, prepend(space))()
	}
	s.next.piece(w, s.text, at, first)
}

// spelled writes bytes as characters.
type spelled struct {
	next part
	text []byte
}

func (s *spelled) piece(w *work, text []byte, at int, first bool) {
	s.text = spell(s.text[:0], text)
	if w.on {
		defer w.change(&at, text, spellBytes{})()
	}
	s.next.piece(w, s.text, at, first)
}

// metaspace writes spaces as another character, puts one in front, and splits there.
type metaspace struct {
	next          part
	with          []byte
	always, begin bool // put one in front of each piece, or of the first
	split         bool
	text          []byte
}

func (m *metaspace) piece(w *work, text []byte, at int, first bool) {
	to := m.text[:0]
	ahead := (m.always || m.begin && first) && text[0] != ' ' && !bytes.HasPrefix(text, m.with)
	if ahead {
		to = append(to, m.with...)
	}
	to = replaceLiteral{space, m.with}.apply(w, to, text)
	m.text = to
	if w.on {
		defer w.change(&at, text, metaEdits{m.with, ahead})()
	}
	if !m.split {
		m.next.piece(w, to, at, first)
		return
	}
	for len(to) > 0 {
		n := len(to)
		_, size := utf8.DecodeRune(to)
		if i := bytes.Index(to[size:], m.with); i >= 0 {
			n = size + i
		}
		m.next.piece(w, to[:n], at, first)
		to, at, first = to[n:], at+n, false
	}
}

var space = []byte(" ")

// fixedLength cuts after so many characters.
type fixedLength struct {
	next   part
	length int
}

func (f *fixedLength) piece(w *work, text []byte, at int, first bool) {
	for len(text) > 0 {
		end := 0
		for n := 0; n < f.length && end < len(text); n++ {
			_, size := utf8.DecodeRune(text[end:])
			end += size
		}
		f.next.piece(w, text[:end], at, first)
		text, at, first = text[end:], at+end, false
	}
}
