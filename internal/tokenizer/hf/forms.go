package hf

import "unicode/utf8"

// form is one of Unicode's normal forms.
type form struct {
	compose, compatible bool
	chars               *table
}

// Hangul's syllables are computed.
const (
	hangulBase, hangulEnd      = 0xAC00, 0xAC00 + 11172
	leadBase, leadCount        = 0x1100, 19
	vowelBase, vowelCount      = 0x1161, 21
	trailBase, trailCount      = 0x11A7, 28
	hangulBlock                = vowelCount * trailCount
	firstSpecial          rune = 0xA0 // below it nothing changes in any form
)

// touches reports whether a character, or its neighbours for its sake, could change.
func (f *form) touches(r rune) bool {
	if r < firstSpecial {
		return false
	}
	if r >= hangulBase && r < hangulEnd {
		return !f.compose
	}
	return f.chars.special[r] || r >= vowelBase && r < trailBase+trailCount
}

// normalize appends a text's normal form. What is between two characters that nothing
// touches is done at a time.
func (f *form) normalize(dst []byte, text []byte) []byte {
	var run []rune
	starter, plain := 0, 0 // text[plain:] is not copied yet; starter: the last character before here that may compose
	for at := 0; at < len(text); {
		if text[at] < utf8.RuneSelf {
			starter = at
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if !f.touches(r) {
			starter = at
			at += size
			continue
		}
		dst = append(dst, text[plain:starter]...)
		run = run[:0]
		for at = starter; at < len(text); {
			r, size := utf8.DecodeRune(text[at:])
			if at > starter && !f.touches(r) {
				break
			}
			run = append(run, r)
			at += size
		}
		for _, r := range f.of(run) {
			dst = utf8.AppendRune(dst, r)
		}
		plain, starter = at, at
	}
	return append(dst, text[plain:]...)
}

// of is the form of some characters.
func (f *form) of(text []rune) []rune {
	all := make([]rune, 0, len(text)+8)
	for _, r := range text {
		all = f.decompose(all, r)
	}
	f.order(all)
	if f.compose {
		all = f.composed(all)
	}
	return all
}

func (f *form) decompose(dst []rune, r rune) []rune {
	if r >= hangulBase && r < hangulEnd {
		i := r - hangulBase
		dst = append(dst, leadBase+i/hangulBlock, vowelBase+i%hangulBlock/trailCount)
		if t := i % trailCount; t > 0 {
			dst = append(dst, trailBase+t)
		}
		return dst
	}
	if f.compatible {
		if to, ok := f.chars.compatible[r]; ok {
			return append(dst, to...)
		}
	}
	if to, ok := f.chars.canonical[r]; ok {
		return append(dst, to...)
	}
	return append(dst, r)
}

// order sorts marks by their class, keeping the order of equals.
func (f *form) order(all []rune) {
	for from := 0; from < len(all); {
		if f.chars.class[all[from]] == 0 {
			from++
			continue
		}
		to := from
		for to < len(all) && f.chars.class[all[to]] != 0 {
			to++
		}
		f.sortMarks(all[from:to])
		from = to
	}
}

// sortMarks counts: a hostile text has a million marks in a row.
func (f *form) sortMarks(marks []rune) {
	var count [257]int
	for _, r := range marks {
		count[int(f.chars.class[r])+1]++
	}
	for i := 1; i < len(count); i++ {
		count[i] += count[i-1]
	}
	sorted := make([]rune, len(marks))
	for _, r := range marks {
		c := f.chars.class[r]
		sorted[count[c]] = r
		count[c]++
	}
	copy(marks, sorted)
}

func (f *form) composed(all []rune) []rune {
	out := all[:0]
	starter := -1
	var last uint8 // the class of the last character that stayed behind the starter
	for _, r := range all {
		class := f.chars.class[r]
		if starter >= 0 && (len(out)-1 == starter || last < class) {
			if c, ok := f.pair(out[starter], r); ok {
				out[starter] = c
				continue
			}
		}
		out = append(out, r)
		if class == 0 {
			starter, last = len(out)-1, 0
		} else {
			last = class
		}
	}
	return out
}

func (f *form) pair(a, b rune) (rune, bool) {
	switch {
	case a >= leadBase && a < leadBase+leadCount && b >= vowelBase && b < vowelBase+vowelCount:
		return hangulBase + (a-leadBase)*hangulBlock + (b-vowelBase)*trailCount, true
	case a >= hangulBase && a < hangulEnd && (a-hangulBase)%trailCount == 0 && b > trailBase && b < trailBase+trailCount:
		return a + b - trailBase, true
	}
	c, ok := f.chars.pairs[[2]rune{a, b}]
	return c, ok
}
