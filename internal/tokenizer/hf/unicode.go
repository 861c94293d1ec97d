package hf

import (
	_ "embed"
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

//go:embed unicode.bin
var unicodeBin []byte

// General categories, in the order of unicode.bin.
const (
	catCn = iota
	catLu
	catLl
	catLt
	catLm
	catLo
	catMn
	catMc
	catMe
	catNd
	catNl
	catNo
	catPc
	catPd
	catPs
	catPe
	catPi
	catPf
	catPo
	catSm
	catSc
	catSk
	catSo
	catZs
	catZl
	catZp
	catCc
	catCf
	catCo
)

// Properties of a character: its category, and what Rust's libraries call it.
const (
	propCategory = 1<<5 - 1
	propWord     = 1 << 5 // \w of Rust's regular expressions
	propNumeric  = 1 << 6
	propPunct    = 1 << 7
	propSpace    = 1 << 8 // also \s of all regular expressions
	propMark     = 1 << 9
	propControl  = 1 << 10 // what BertNormalizer removes as a control character
	propAccent   = 1 << 11 // what it removes as an accent
	propLetter   = 1 << 12 // \p{L}
	propNumber   = 1 << 13 // \p{N}
	propMarks    = 1 << 14 // \p{M}
	propUpper    = 1 << 15 // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	propLower    = 1 << 16 // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
)

// derived returns the properties that follow from a category.
func derived(category uint32) uint32 {
	switch category {
	case catLu, catLt:
		return propLetter | propUpper
	case catLl:
		return propLetter | propLower
	case catLm, catLo:
		return propLetter | propUpper | propLower
	case catMn, catMc, catMe:
		return propMarks | propUpper | propLower
	case catNd, catNl, catNo:
		return propNumber
	}
	return 0
}

// table is what is known about characters.
type table struct {
	ascii  [utf8.RuneSelf]uint32
	index  [(utf8.MaxRune + 1) >> 8]uint16 // of a block of 256 characters
	blocks [][256]uint32

	lower, canonical, compatible map[rune][]rune
	class                        map[rune]uint8
	pairs                        map[[2]rune]rune
	// plain characters stay what they are in every form, and change nothing around them.
	special map[rune]bool
	second  map[rune]bool // may be composed with the character in front
}

// chars is read once, when a tokenizer is.
var chars = sync.OnceValue(func() *table {
	t := &table{special: make(map[rune]bool), second: make(map[rune]bool)}
	data := unicodeBin
	number := func() int {
		n, size := binary.Uvarint(data)
		data = data[size:]
		return int(n)
	}
	props := make([]uint32, utf8.MaxRune+1)
	at := 0
	for range number() {
		p := uint32(number())
		p |= derived(p & propCategory)
		for range number() {
			props[at] = p
			at++
		}
	}
	copy(t.ascii[:], props)
	known := make(map[[256]uint32]uint16)
	for i := range t.index {
		block := [256]uint32(props[i<<8:])
		n, ok := known[block]
		if !ok {
			n = uint16(len(t.blocks))
			known[block] = n
			t.blocks = append(t.blocks, block)
		}
		t.index[i] = n
	}
	mappings := func() map[rune][]rune {
		count := number()
		m := make(map[rune][]rune, count)
		c := 0
		for range count {
			c += number()
			to := make([]rune, number())
			for i := range to {
				to[i] = rune(number())
			}
			m[rune(c)] = to
		}
		return m
	}
	t.lower, t.canonical, t.compatible = mappings(), mappings(), mappings()
	t.class = make(map[rune]uint8)
	c := 0
	for range number() {
		c += number()
		t.class[rune(c)] = uint8(number())
	}
	t.pairs = make(map[[2]rune]rune)
	for range number() {
		pair := [2]rune{rune(number()), rune(number())}
		t.pairs[pair] = rune(number())
		t.special[pair[1]], t.second[pair[1]] = true, true
	}
	for c := range t.canonical {
		t.special[c] = true
	}
	for c := range t.compatible {
		t.special[c] = true
	}
	for c := range t.class {
		t.special[c] = true
	}
	return t
})

// prop returns the properties of a character.
func (t *table) prop(r rune) uint32 {
	if r < utf8.RuneSelf {
		return t.ascii[r]
	}
	return t.blocks[t.index[r>>8]][r&0xFF]
}

// next returns the first character's properties and length. The text is valid UTF-8 and
// not empty.
func (t *table) next(text []byte) (uint32, int) {
	if b := text[0]; b < utf8.RuneSelf {
		return t.ascii[b], 1
	}
	r, size := utf8.DecodeRune(text)
	return t.blocks[t.index[r>>8]][r&0xFF], size
}

// last returns the last character's properties and length. The text is valid UTF-8 and not
// empty.
func (t *table) last(text []byte) (uint32, int) {
	r, size := utf8.DecodeLastRune(text)
	return t.prop(r), size
}
