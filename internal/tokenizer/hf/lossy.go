package hf

import "unicode/utf8"

const replacement = "\uFFFD"

// appendValid appends a text with U+FFFD for each maximal part that is not UTF-8: for as many
// bytes as could begin a character.
func appendValid(dst, text []byte) []byte {
	for len(text) > 0 {
		n := validPrefix(text)
		dst = append(dst, text[:n]...)
		if text = text[n:]; len(text) > 0 {
			dst = append(dst, replacement...)
			text = text[invalidPart(text):]
		}
	}
	return dst
}

// validPrefix is how many bytes at the beginning are UTF-8.
func validPrefix(text []byte) int {
	if utf8.Valid(text) {
		return len(text)
	}
	at := 0
	for at < len(text) {
		if text[at] < utf8.RuneSelf {
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// invalidPart is the length of the part that is not UTF-8, at the beginning.
func invalidPart(text []byte) int {
	need, low, high := 0, byte(0x80), byte(0xBF) // of the second byte
	switch b := text[0]; {
	case b >= 0xC2 && b <= 0xDF:
		need = 1
	case b >= 0xE0 && b <= 0xEF:
		need = 2
		switch b {
		case 0xE0:
			low = 0xA0
		case 0xED:
			high = 0x9F
		}
	case b >= 0xF0 && b <= 0xF4:
		need = 3
		switch b {
		case 0xF0:
			low = 0x90
		case 0xF4:
			high = 0x8F
		}
	}
	n := 1
	for ; n <= need && n < len(text); n++ {
		if text[n] < low || text[n] > high {
			break
		}
		low, high = 0x80, 0xBF
	}
	return min(n, len(text))
}

// unfinished is how many bytes at the end may yet become a character.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		tail := text[len(text)-n:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) && invalidPart(tail) == n {
				return n
			}
			return 0
		}
	}
	return 0
}
