package hf

import (
	"bytes"
	"unicode/utf8"
)

func (l lowercase) edits(w *work, text []byte, edit editFunc) { eachRune(w, text, l, edit) }
func (f eachChar) edits(w *work, text []byte, edit editFunc)  { eachRune(w, text, f, edit) }
func (spellBytes) edits(w *work, text []byte, edit editFunc) {
	eachRune(w, text, spellBytes{}, edit)
}

// eachRune is for normalizers that change characters one by one.
func eachRune(w *work, text []byte, n interface {
	apply(w *work, dst, text []byte) []byte
}, edit editFunc) {
	var buf []byte
	for at := 0; at < len(text); {
		end := charEnd(text, at)
		if buf = n.apply(w, buf[:0], text[at:end]); !bytes.Equal(buf, text[at:end]) {
			edit(at, end, buf)
		}
		at = end
	}
}

func (s stripSpace) edits(_ *work, text []byte, edit editFunc) {
	from, to := 0, len(text)
	if s.left {
		from = s.chars.run(text, 0, propSpace, true)
	}
	for s.right && to > from {
		p, size := s.chars.last(text[:to])
		if p&propSpace == 0 {
			break
		}
		to -= size
	}
	if from > 0 {
		edit(0, from, nil)
	}
	if to < len(text) {
		edit(to, len(text), nil)
	}
}

func (p prepend) edits(_ *work, text []byte, edit editFunc) {
	if len(text) > 0 && len(p) > 0 {
		edit(0, 0, p)
	}
}

func (r replaceLiteral) edits(w *work, text []byte, edit editFunc) {
	literal(r.old).each(w, text, func(from, to int) { edit(from, to, r.with) })
}

func (r replacePattern) edits(w *work, text []byte, edit editFunc) {
	r.p.each(w, text, func(from, to int) { edit(from, to, r.with) })
}

// metaEdits are those of metaspace.
type metaEdits struct {
	with  []byte
	ahead bool // one is put in front
}

func (m metaEdits) edits(w *work, text []byte, edit editFunc) {
	if m.ahead {
		edit(0, 0, m.with)
	}
	replaceLiteral{space, m.with}.edits(w, text, edit)
}

// edits normalizes the characters that may change, each with those that it may join.
func (f *form) edits(_ *work, text []byte, edit editFunc) {
	var run []rune
	var made []byte
	for at, last := 0, 0; at < len(text); {
		if text[at] < utf8.RuneSelf {
			last = at
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if !f.touches(r) {
			last = at
			at += size
			continue
		}
		from := at
		if f.joins(r) {
			from = last
		}
		run = run[:0]
		for at = from; at < len(text); {
			r, size := utf8.DecodeRune(text[at:])
			if at > from && !f.joins(r) {
				break
			}
			run = append(run, r)
			at += size
		}
		made = made[:0]
		for _, r := range f.of(run) {
			made = utf8.AppendRune(made, r)
		}
		if !bytes.Equal(made, text[from:at]) {
			edit(from, at, made)
		}
		last = at
	}
}

// joins reports whether a character may change, or change its place, with what is in front of it.
func (f *form) joins(r rune) bool {
	if r < firstSpecial {
		return false
	}
	if f.chars.class[r] != 0 || r >= vowelBase && r < trailBase+trailCount || f.chars.second[r] {
		return true
	}
	d := f.decompose(nil, r)
	return len(d) > 0 && d[0] != r && f.joins(d[0])
}
