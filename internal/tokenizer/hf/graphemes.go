package hf

import (
	_ "embed"
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

//go:embed graphemes.bin
var graphemesBin []byte

// Kinds of characters, in the order of graphemes.bin, and flags.
const (
	graphemeAny = iota
	graphemeControl
	graphemeExtend
	graphemeJoiner
	graphemeSpacing
	graphemePrepend
	graphemeL
	graphemeV
	graphemeT
	graphemeLV
	graphemeLVT
	graphemePictograph
	graphemeConsonant
	graphemeKind   = 1<<4 - 1
	graphemeLinker = 1 << 4 // joins consonants
	graphemeLinked = 1 << 5 // may stand between consonants that are joined
)

// graphemeTable has the kind of each character.
type graphemeTable struct {
	index  [(utf8.MaxRune + 1) >> 8]uint8 // of a block of 256 characters
	blocks [][256]uint8
}

var graphemes = sync.OnceValue(func() *graphemeTable {
	data := graphemesBin
	number := func() int {
		n, size := binary.Uvarint(data)
		data = data[size:]
		return int(n)
	}
	kinds := make([]uint8, 0, utf8.MaxRune+1)
	for range number() {
		kind := uint8(number())
		for range number() {
			kinds = append(kinds, kind)
		}
	}
	t := &graphemeTable{}
	known := make(map[[256]uint8]uint8)
	for i := range t.index {
		block := [256]uint8(kinds[i<<8:])
		n, ok := known[block]
		if !ok {
			n = uint8(len(t.blocks))
			known[block] = n
			t.blocks = append(t.blocks, block)
		}
		t.index[i] = n
	}
	return t
})

func (t *graphemeTable) of(text []byte) (kind uint8, size int) {
	r, size := utf8.DecodeRune(text)
	return t.blocks[t.index[r>>8]][r&0xFF], size
}

// first returns the length of the first extended grapheme cluster of Unicode's UAX #29. Flags, which are
// longer than any that a caller treats as a whole, come in parts.
func (t *graphemeTable) first(text []byte) int {
	kind, at := t.of(text)
	if text[0] == '\r' && len(text) > 1 && text[1] == '\n' {
		return 2
	}
	before := kind & graphemeKind
	pictograph := before == graphemePictograph // up to here: a pictograph and what extends it
	consonant := before == graphemeConsonant   // a consonant and what is linked to it
	linker := false                            // there was one behind the consonant
	for at < len(text) {
		kind, size := t.of(text[at:])
		after := kind & graphemeKind
		if !joined(before, after, pictograph, consonant && linker) {
			return at
		}
		// A joiner ends what extends a pictograph, except directly before the next one.
		pictograph = after == graphemePictograph || pictograph && before != graphemeJoiner && (after == graphemeExtend || after == graphemeJoiner)
		switch {
		case kind&graphemeLinker != 0:
			linker = true
		case kind&graphemeLinked == 0:
			consonant, linker = after == graphemeConsonant, false
		}
		before = after
		at += size
	}
	return at
}

// joined reports whether two characters are in one cluster.
func joined(before, after uint8, pictograph, linked bool) bool {
	if before == graphemeControl || after == graphemeControl {
		return false
	}
	switch after {
	case graphemeExtend, graphemeJoiner, graphemeSpacing:
		return true
	case graphemeV:
		if before == graphemeL || before == graphemeV || before == graphemeLV {
			return true
		}
	case graphemeT:
		if before == graphemeV || before == graphemeLV || before == graphemeLVT || before == graphemeT {
			return true
		}
	case graphemeL, graphemeLV, graphemeLVT:
		if before == graphemeL {
			return true
		}
	case graphemePictograph:
		if before == graphemeJoiner && pictograph {
			return true
		}
	case graphemeConsonant:
		if linked {
			return true
		}
	}
	return before == graphemePrepend
}
