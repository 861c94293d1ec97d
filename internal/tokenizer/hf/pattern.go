package hf

import (
	"fmt"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// pattern is a regular expression without a scanner of its own.
type pattern struct {
	re *regexp2.Regexp
}

func newPattern(text string) (*pattern, error) {
	translated, err := translate(text)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(translated, regexp2.Multiline, regexp2.OptionMaxBacktrackingStackSize(maxBacktracking))
	if err != nil {
		return nil, fmt.Errorf("%w: the pattern %s: %w", ErrUnsupported, clip(text), err)
	}
	return &pattern{re}, nil
}

// each calls found for each match, in order. An empty match directly after another match is
// skipped.
func (p *pattern) each(w *work, text []byte, found func(from, to int)) {
	stand := standIns()
	runes := w.runes[:0]
	for at := 0; at < len(text); {
		if b := text[at]; b < utf8.RuneSelf {
			runes = append(runes, rune(b))
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if to, ok := stand[r]; ok {
			// Its length stays known: where a match begins and ends is counted in the text.
			r = to
		}
		runes = append(runes, r)
		at += size
	}
	at, atRune, last := 0, 0, -1
	skip := func(to int) int {
		for ; atRune < to; atRune++ {
			if text[at] < utf8.RuneSelf {
				at++
				continue
			}
			_, size := utf8.DecodeRune(text[at:])
			at += size
		}
		return at
	}
	err := p.re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		from, n, _ := m.GroupRange(0)
		if n == 0 && from == last {
			return true
		}
		last = from + n
		found(skip(from), skip(from+n))
		return true
	})
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("the pattern %s: %w", clip(p.re.String()), err)
	}
	if cap(runes) <= maxKeptSymbols*4 {
		w.runes = runes
	} else {
		w.runes = nil
	}
}

// standIns maps the characters whose category differs between the library and Go to characters that
// both put into the library's category.
var standIns = sync.OnceValue(func() map[rune]rune {
	t := chars()
	ours := make([]uint8, utf8.MaxRune+1)
	for name, number := range map[string]uint8{
		"Lu": catLu, "Ll": catLl, "Lt": catLt, "Lm": catLm, "Lo": catLo, "Mn": catMn, "Mc": catMc, "Me": catMe,
		"Nd": catNd, "Nl": catNl, "No": catNo, "Pc": catPc, "Pd": catPd, "Ps": catPs, "Pe": catPe, "Pi": catPi,
		"Pf": catPf, "Po": catPo, "Sm": catSm, "Sc": catSc, "Sk": catSk, "So": catSo, "Zs": catZs, "Zl": catZl,
		"Zp": catZp, "Cc": catCc, "Cf": catCf, "Co": catCo,
	} {
		table := unicode.Categories[name]
		for _, r := range table.R16 {
			for c := uint32(r.Lo); c <= uint32(r.Hi); c += uint32(r.Stride) {
				ours[c] = number
			}
		}
		for _, r := range table.R32 {
			for c := r.Lo; c <= r.Hi; c += r.Stride {
				ours[c] = number
			}
		}
	}
	stand := make(map[rune]rune)
	var near [propCategory + 1]rune // the last one of each category: likely of the same script
	for c := rune(0); c <= utf8.MaxRune; c++ {
		theirs := t.prop(c) & propCategory
		switch {
		case c >= 0xD800 && c <= 0xDFFF:
		case uint32(ours[c]) == theirs:
			near[theirs] = c
		default:
			stand[c] = near[theirs]
		}
	}
	return stand
})
