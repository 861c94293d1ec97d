package hf

import (
	"bytes"
	"unicode/utf8"
)

// normalizer changes a text. What it appends to dst may be the text as it is.
type normalizer interface {
	apply(w *work, dst, text []byte) []byte
	// edits calls edit for what apply changes, in the text's order.
	edits(w *work, text []byte, edit editFunc)
}

// normalize returns the normalized text, which lies in w's memory or is the text itself.
func (t *Tokenizer) normalize(w *work, text []byte) []byte {
	for i, n := range t.normalizers {
		buf := &w.normal[i%2]
		if cap(*buf) > maxKeptBytes && len(text) < maxKeptBytes/4 {
			*buf = nil
		}
		*buf = n.apply(w, (*buf)[:0], text)
		if w.on {
			was := text
			w.source = w.source.edited(was, func(edit editFunc) { n.edits(w, was, edit) })
		}
		text = *buf
	}
	return text
}

func (f *form) apply(_ *work, dst, text []byte) []byte { return f.normalize(dst, text) }

type lowercase struct{ chars *table }

func (l lowercase) apply(_ *work, dst, text []byte) []byte {
	for at := 0; at < len(text); {
		if b := text[at]; b < utf8.RuneSelf {
			if b >= 'A' && b <= 'Z' {
				b += 'a' - 'A'
			}
			dst = append(dst, b)
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if to, ok := l.chars.lower[r]; ok {
			for _, r := range to {
				dst = utf8.AppendRune(dst, r)
			}
		} else {
			dst = append(dst, text[at:at+size]...)
		}
		at += size
	}
	return dst
}

// stripSpace removes white space at the ends.
type stripSpace struct {
	left, right bool
	chars       *table
}

func (s stripSpace) apply(_ *work, dst, text []byte) []byte {
	if s.left {
		text = text[s.chars.run(text, 0, propSpace, true):]
	}
	for s.right && len(text) > 0 {
		p, size := s.chars.last(text)
		if p&propSpace == 0 {
			break
		}
		text = text[:len(text)-size]
	}
	return append(dst, text...)
}

// eachChar keeps, changes or removes characters one by one.
type eachChar func(r rune) (to rune, keep bool)

func (f eachChar) apply(_ *work, dst, text []byte) []byte {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if to, keep := f(r); keep {
			dst = utf8.AppendRune(dst, to)
		}
		at += size
	}
	return dst
}

// nmt is the normalizer of that name.
func nmt(r rune) (rune, bool) {
	switch {
	case r >= 1 && r <= 8, r == 0xB, r >= 0xE && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return 0, false
	case r == '\t', r == '\n', r == 0xC, r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029, r == 0x2581,
		r == 0xFEFF, r == 0xFFFD:
		return ' ', true
	}
	return r, true
}

type prepend []byte

func (p prepend) apply(_ *work, dst, text []byte) []byte {
	if len(text) > 0 {
		dst = append(dst, p...)
	}
	return append(dst, text...)
}

type spellBytes struct{}

func (spellBytes) apply(_ *work, dst, text []byte) []byte { return spell(dst, text) }

// replaceLiteral is a normalizer and a part of decoders.
type replaceLiteral struct{ old, with []byte }

func (r replaceLiteral) apply(_ *work, dst, text []byte) []byte {
	for {
		i := bytes.Index(text, r.old)
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(append(dst, text[:i]...), r.with...)
		text = text[i+len(r.old):]
	}
}

type replacePattern struct {
	p    *pattern
	with []byte
}

func (r replacePattern) apply(w *work, dst, text []byte) []byte {
	at := 0
	r.p.each(w, text, func(from, to int) {
		dst = append(append(dst, text[at:from]...), r.with...)
		at = to
	})
	return append(dst, text[at:]...)
}
