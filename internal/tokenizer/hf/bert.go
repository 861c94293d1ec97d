package hf

import (
	"errors"
	"unicode/utf8"
)

// parseBert makes the steps of BertNormalizer.
func (t *Tokenizer) parseBert(s settings) ([]normalizer, error) {
	clean, chinese, lower := true, true, true
	var strip *bool // by default as lower
	if err := errors.Join(s.into("clean_text", &clean), s.into("handle_chinese_chars", &chinese), s.into("strip_accents", &strip),
		s.into("lowercase", &lower)); err != nil {
		return nil, err
	}
	for _, name := range []string{"clean_text", "handle_chinese_chars", "lowercase"} {
		if !s.has(name) {
			return nil, errors.New(name + " is missing")
		}
	}
	var out []normalizer
	if clean {
		out = append(out, eachChar(func(r rune) (rune, bool) {
			p := t.chars.prop(r)
			switch {
			case r == 0, r == utf8.RuneError, p&propControl != 0:
				return 0, false
			case p&propSpace != 0:
				return ' ', true
			}
			return r, true
		}))
	}
	if chinese {
		out = append(out, spacedChinese{})
	}
	if strip == nil && lower || strip != nil && *strip {
		out = append(out, &form{chars: t.chars}, eachChar(func(r rune) (rune, bool) { return r, t.chars.prop(r)&propAccent == 0 }))
	}
	if lower {
		out = append(out, lowercase{t.chars})
	}
	return out, nil
}

// spacedChinese puts spaces around each character of some blocks of CJK, as BERT's tokenizer has them.
type spacedChinese struct{}

func isChinese(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2A6DF || r >= 0x2A700 && r <= 0x2B81F ||
		r >= 0x2B920 && r <= 0x2CEAF || r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}

func (spacedChinese) apply(_ *work, dst, text []byte) []byte {
	for at := 0; at < len(text); {
		if text[at] < utf8.RuneSelf {
			dst = append(dst, text[at])
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if isChinese(r) {
			dst = append(dst, ' ')
			dst = append(dst, text[at:at+size]...)
			dst = append(dst, ' ')
		} else {
			dst = append(dst, text[at:at+size]...)
		}
		at += size
	}
	return dst
}

func (s spacedChinese) edits(w *work, text []byte, edit editFunc) { eachRune(w, text, s, edit) }
