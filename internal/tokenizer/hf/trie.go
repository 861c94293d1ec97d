package hf

import (
	"math"
	"slices"
)

// trie finds the tokens that a text begins with. It is a double array: the child of a node by a byte is
// at base ^ byte, if that unit's parent is the node.
type trie struct{ units []trieUnit }

type trieUnit struct {
	base   int32
	parent int32 // -1: free
	id     int32 // of the token that ends here; -1: none
}

const (
	trieRoot = 0             // the node of the empty text
	noParent = math.MaxInt32 // its parent
)

// unit returns what is in the place of the node of one more byte. It is that node if node is its parent.
func (t *trie) unit(node int32, b byte) (*trieUnit, int32) {
	at := t.units[node].base ^ int32(b)
	return &t.units[at], at
}

// child returns the node of one more byte, or -1.
func (t *trie) child(node int32, b byte) int32 {
	u, at := t.unit(node, b)
	if u.parent != node {
		return -1
	}
	return at
}

// walk returns the node of a text, or -1.
func (t *trie) walk(text string) int32 {
	node := int32(trieRoot)
	for i := 0; i < len(text) && node >= 0; i++ {
		node = t.child(node, text[i])
	}
	return node
}

// trieBlock is how many units are added at a time: children differ in their last 8 bits alone.
const trieBlock = 256

// newTrie makes a trie of the tokens of a vocabulary.
func newTrie(ids map[string]int32) *trie {
	keys := make([]string, 0, len(ids))
	for name := range ids {
		if name != "" {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	b := trieBuilder{trie: &trie{}, free: -1}
	b.grow()
	b.take(trieRoot, noParent)
	type part struct {
		node          int32
		lo, hi, depth int // keys with a common beginning
	}
	open := []part{{trieRoot, 0, len(keys), 0}}
	var labels []byte
	var ends []int
	for len(open) > 0 {
		p := open[len(open)-1]
		open = open[:len(open)-1]
		if p.lo < p.hi && len(keys[p.lo]) == p.depth {
			b.units[p.node].id = ids[keys[p.lo]]
			p.lo++
		}
		if p.lo == p.hi {
			continue
		}
		labels, ends = labels[:0], ends[:0]
		for i := p.lo; i < p.hi; i++ {
			if c := keys[i][p.depth]; len(labels) == 0 || labels[len(labels)-1] != c {
				labels, ends = append(labels, c), append(ends, i)
			}
		}
		ends = append(ends, p.hi)
		base := b.place(labels)
		b.units[p.node].base = base
		for i, c := range labels {
			child := base ^ int32(c)
			b.take(child, p.node)
			open = append(open, part{child, ends[i], ends[i+1], p.depth + 1})
		}
	}
	return b.trie
}

// trieBuilder keeps the free units in a ring.
type trieBuilder struct {
	*trie
	free       int32 // one of them; -1: none
	next, prev []int32
}

// grow adds a block of free units.
func (b *trieBuilder) grow() int32 {
	first := int32(len(b.units))
	for i := range int32(trieBlock) {
		b.units = append(b.units, trieUnit{parent: -1, id: -1})
		b.next, b.prev = append(b.next, first+i+1), append(b.prev, first+i-1)
	}
	last := first + trieBlock - 1
	if b.free < 0 {
		b.next[last], b.prev[first], b.free = first, last, first
		return first
	}
	head, tail := b.free, b.prev[b.free]
	b.next[tail], b.prev[first] = first, tail
	b.next[last], b.prev[head] = head, last
	return first
}

// take makes a free unit a child.
func (b *trieBuilder) take(at, parent int32) {
	b.units[at].parent = parent
	next, prev := b.next[at], b.prev[at]
	if next == at {
		b.free = -1
		return
	}
	b.next[prev], b.prev[next] = next, prev
	if b.free == at {
		b.free = next
	}
}

// place returns a base at which the units of all labels are free.
func (b *trieBuilder) place(labels []byte) int32 {
	const most = 64 // free units that are tried
	at := b.free
	for range most {
		if at < 0 {
			break
		}
		base := at ^ int32(labels[0])
		fits := true
		for _, c := range labels[1:] {
			if b.units[base^int32(c)].parent >= 0 {
				fits = false
				break
			}
		}
		if fits {
			return base
		}
		if at = b.next[at]; at == b.free {
			break
		}
	}
	first := b.grow()
	if len(labels) > 1 {
		b.free = first // the older ones are tried less and less successfully
	}
	return first
}
