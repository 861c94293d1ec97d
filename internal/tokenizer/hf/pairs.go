package hf

import "math/bits"

// pairTable has the merges: what two ids merge to, and which goes first.
type pairTable struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	a, b   int32 // a: -1: free
	rank   int32
	merged int32
}

func newPairTable(count int) pairTable {
	size := 16
	for size < 2*count {
		size *= 2
	}
	t := pairTable{slots: make([]pairSlot, size), shift: uint(64 - bits.TrailingZeros(uint(size)))}
	for i := range t.slots {
		t.slots[i].a = -1
	}
	return t
}

func (t *pairTable) hash(a, b int32) int {
	return int((uint64(uint32(a))<<32 | uint64(uint32(b))) * 0x9E3779B97F4A7C15 >> t.shift)
}

// put adds a merge; a later one of the same pair replaces it.
func (t *pairTable) put(s pairSlot) {
	mask := len(t.slots) - 1
	i := t.hash(s.a, s.b)
	for t.slots[i].a >= 0 && (t.slots[i].a != s.a || t.slots[i].b != s.b) {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

const noRank = 1<<31 - 1

// get returns the rank of a merge, noRank where there is none.
func (t *pairTable) get(a, b int32) (rank, merged int32) {
	mask := len(t.slots) - 1
	for i := t.hash(a, b); ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.a == a && s.b == b {
			return s.rank, s.merged
		}
		if s.a < 0 {
			return noRank, 0
		}
	}
}

// maxScanned is how many symbols are merged by looking through all pairs each time: that
// is faster than a queue for words, and would be quadratic for what is longer.
const maxScanned = 48

// scan merges symbols in place, and returns those that are left. Of equal ranks the first
// goes first.
func (t *pairTable) scan(ids []int32, scratch *[maxScanned][2]int32) []int32 {
	n := len(ids)
	if n < 2 {
		return ids
	}
	ranks := scratch[:n-1] // of each symbol with the next one, and what they merge to
	for i := range ranks {
		ranks[i][0], ranks[i][1] = t.get(ids[i], ids[i+1])
	}
	for {
		best, at := int32(noRank), -1
		for i := range ranks {
			if ranks[i][0] < best {
				best, at = ranks[i][0], i
			}
		}
		if at < 0 {
			return ids
		}
		ids[at] = ranks[at][1]
		copy(ids[at+1:], ids[at+2:])
		ids = ids[:len(ids)-1]
		copy(ranks[at:], ranks[at+1:])
		ranks = ranks[:len(ranks)-1]
		if at > 0 {
			ranks[at-1][0], ranks[at-1][1] = t.get(ids[at-1], ids[at])
		}
		if at < len(ranks) {
			ranks[at][0], ranks[at][1] = t.get(ids[at], ids[at+1])
		}
	}
}
