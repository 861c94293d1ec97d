package hf

import (
	"bytes"
	"encoding/binary"
)

// wordCache keeps the ids of words. One goroutine at a time may use it.
type wordCache struct {
	slots []cacheSlot
	used  int
	text  []byte
	ids   []int32
}

type cacheSlot struct {
	hash     uint32
	text, id uint32 // start of the word and of its ids
	textLen  uint16
	idLen    uint16 // + 1; 0: free
}

func (c *wordCache) reset() {
	if c.slots == nil {
		c.slots = make([]cacheSlot, cacheSlots)
	} else {
		clear(c.slots)
	}
	c.used, c.text, c.ids = 0, c.text[:0], c.ids[:0]
}

// find returns a word's ids, or nil and the slot for them.
func (c *wordCache) find(word []byte) (slot int, ids []int32) {
	if c.slots == nil {
		c.reset()
	}
	hash := hashWord(word)
	i := int(hash >> 32 & (cacheSlots - 1))
	for {
		s := &c.slots[i]
		if s.idLen == 0 {
			s.hash = uint32(hash)
			return i, nil
		}
		if s.hash == uint32(hash) && int(s.textLen) == len(word) && bytes.Equal(c.text[s.text:int(s.text)+len(word)], word) {
			// Return a slice that is not nil, even for a word without ids.
			return i, c.ids[s.id : s.id+uint32(s.idLen)-1 : s.id+uint32(s.idLen)-1]
		}
		i = (i + 1) & (cacheSlots - 1)
	}
}

// put keeps a word's ids in the slot that find has returned.
func (c *wordCache) put(slot int, word []byte, ids []int32) {
	s := &c.slots[slot]
	*s = cacheSlot{hash: s.hash, text: uint32(len(c.text)), id: uint32(len(c.ids)), textLen: uint16(len(word)), idLen: uint16(len(ids) + 1)}
	c.text = append(c.text, word...)
	c.ids = append(c.ids, ids...)
	if c.used++; c.used > cacheSlots/2 || len(c.text) > cacheBytes {
		c.reset()
	}
}

func hashWord(word []byte) uint64 {
	const k = 0x9E3779B97F4A7C15
	h := uint64(len(word)) * k
	for len(word) >= 8 {
		h = (h ^ binary.LittleEndian.Uint64(word)) * k
		h ^= h >> 29
		word = word[8:]
	}
	var tail uint64
	switch n := len(word); {
	case n >= 4:
		tail = uint64(binary.LittleEndian.Uint32(word)) | uint64(binary.LittleEndian.Uint32(word[n-4:]))<<32
	case n > 0:
		tail = uint64(word[0]) | uint64(word[n/2])<<8 | uint64(word[n-1])<<16
	}
	h = (h ^ tail) * k
	return h ^ h>>32
}
