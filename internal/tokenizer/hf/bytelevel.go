package hf

import "unicode/utf8"

// byteNames spell each byte as a character, as byte-level BPE does: printable ones as
// themselves, the others as the characters from U+0100 on, in order.
var byteNames = func() (names [256]string) {
	next := rune(256)
	for b := range rune(256) {
		r := b
		if printable := '!' <= b && b <= '~' || '¡' <= b && b <= '¬' || '®' <= b; !printable {
			r = next
			next++
		}
		names[b] = string(r)
	}
	return names
}()

// nameBytes are the bytes by such a character, which is below U+0144; -1: none.
var nameBytes = func() (bytes [0x144]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, name := range byteNames {
		r, _ := utf8.DecodeRuneInString(name)
		bytes[r] = int16(b)
	}
	return bytes
}()

// spell appends the names of bytes.
func spell(dst, text []byte) []byte {
	for _, b := range text {
		dst = append(dst, byteNames[b]...)
	}
	return dst
}

// unspell appends the bytes that characters name; false: one names none, and dst is as it
// was.
func unspell(dst []byte, token string) ([]byte, bool) {
	was := len(dst)
	for _, r := range token {
		if int(r) >= len(nameBytes) || nameBytes[r] < 0 {
			return dst[:was], false
		}
		dst = append(dst, byte(nameBytes[r]))
	}
	return dst, true
}
