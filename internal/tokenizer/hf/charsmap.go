package hf

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// charsmap is the normalizer Precompiled, which SentencePiece's models have: texts by which a text is
// replaced, found through a double array of Darts.
type charsmap struct {
	units     []uint32
	texts     []byte // each ends with a zero
	ascii     [utf8.RuneSelf]asciiText
	graphemes *graphemeTable
}

// asciiText is what becomes of a character.
type asciiText struct {
	text     []byte
	replaced bool
}

// A unit of the array: the byte that leads to it, whether a key ends there, and how far away the children
// are. The unit at distance 0 has the place of the key's text.
func unitLabel(u uint32) uint32  { return u & (1<<31 | 0xFF) }
func unitEnds(u uint32) bool     { return u>>8&1 != 0 }
func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
func unitValue(u uint32) uint32  { return u & (1<<31 - 1) }

// wholeBytes is the length from which on a grapheme's characters are replaced one by one.
const wholeBytes = 6

func parseCharsmap(s settings) (*charsmap, error) {
	var packed string
	if !s.has("precompiled_charsmap") {
		return nil, errors.New("precompiled_charsmap is missing")
	}
	if err := s.into("precompiled_charsmap", &packed); err != nil {
		return nil, err
	}
	if n := base64.StdEncoding.DecodedLen(len(packed)); n > maxCharsmapBytes {
		return nil, fmt.Errorf("precompiled_charsmap has %d bytes; the limit is %d", n, maxCharsmapBytes)
	}
	data, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil, fmt.Errorf("precompiled_charsmap is not base64: %w", err)
	}
	c, err := newCharsmap(data)
	if err != nil {
		return nil, fmt.Errorf("precompiled_charsmap: %w", err)
	}
	return c, nil
}

// newCharsmap reads the length of the array in bytes, the array and the texts.
func newCharsmap(data []byte) (*charsmap, error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("it has %d bytes, too few for the length of its trie", len(data))
	}
	size := int64(binary.LittleEndian.Uint32(data)) / 4 * 4
	data = data[4:]
	if size == 0 || size > int64(len(data)) {
		return nil, fmt.Errorf("its trie has %d bytes; there are %d", size, len(data))
	}
	c := &charsmap{units: make([]uint32, size/4), texts: data[size:], graphemes: graphemes()}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if !utf8.Valid(c.texts) {
		return nil, errors.New("its texts are not valid UTF-8")
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	for b := range c.ascii {
		a := &c.ascii[b]
		a.text, a.replaced = c.find([]byte{byte(b)})
	}
	return c, nil
}

// check visits each node that a search can reach: its children and texts are inside of the file.
func (c *charsmap) check() error {
	n := uint32(len(c.units))
	seen := make([]bool, n)
	open := []uint32{unitOffset(c.units[0])} // where the children are
	for len(open) > 0 {
		at := open[len(open)-1]
		open = open[:len(open)-1]
		if at|0xFF >= n {
			return fmt.Errorf("its trie has a node with children at %d, but has %d units", at, n)
		}
		for label := uint32(1); label < 256; label++ {
			child := at ^ label
			u := c.units[child]
			if unitLabel(u) != label || seen[child] {
				continue
			}
			seen[child] = true
			below := child ^ unitOffset(u)
			if unitEnds(u) {
				if below >= n {
					return fmt.Errorf("its trie has a text's place at %d, but has %d units", below, n)
				}
				if v := unitValue(c.units[below]); v > uint32(len(c.texts)) || v < uint32(len(c.texts)) && !utf8.RuneStart(c.texts[v]) {
					return fmt.Errorf("its trie has a text at byte %d of %d, where none begins", v, len(c.texts))
				}
			}
			open = append(open, below)
		}
	}
	return nil
}

// find returns the text for the shortest key that a text begins with.
func (c *charsmap) find(text []byte) ([]byte, bool) {
	at := unitOffset(c.units[0])
	for _, b := range text {
		if b == 0 {
			break
		}
		at ^= uint32(b)
		u := c.units[at]
		if unitLabel(u) != uint32(b) {
			break
		}
		at ^= unitOffset(u)
		if unitEnds(u) {
			with := c.texts[unitValue(c.units[at]):]
			if end := bytes.IndexByte(with, 0); end >= 0 {
				with = with[:end]
			}
			return with, true
		}
	}
	return nil, false
}

// each calls change for what is replaced, in order.
func (c *charsmap) each(text []byte, change editFunc) {
	for at := 0; at < len(text); {
		if b := text[at]; b < utf8.RuneSelf && b != '\r' && (at+1 == len(text) || text[at+1] < utf8.RuneSelf) {
			if a := &c.ascii[b]; a.replaced {
				change(at, at+1, a.text)
			}
			at++
			continue
		}
		size := c.graphemes.first(text[at:])
		if size < wholeBytes {
			if with, ok := c.find(text[at : at+size]); ok {
				change(at, at+size, with)
				at += size
				continue
			}
		}
		for end := at + size; at < end; {
			next := charEnd(text, at)
			if with, ok := c.find(text[at:next]); ok {
				change(at, next, with)
			}
			at = next
		}
	}
}

func (c *charsmap) apply(_ *work, dst, text []byte) []byte {
	done := 0
	c.each(text, func(from, to int, with []byte) {
		dst = append(append(dst, text[done:from]...), with...)
		done = to
	})
	return append(dst, text[done:]...)
}

func (c *charsmap) edits(_ *work, text []byte, edit editFunc) {
	c.each(text, func(from, to int, with []byte) {
		if !bytes.Equal(text[from:to], with) {
			edit(from, to, with)
		}
	})
}
