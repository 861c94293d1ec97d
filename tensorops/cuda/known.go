package cuda

import (
	"cmp"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// known is what a stream knows of numbers that the host has brought to the device: from then on, until an operation has something
// else in their memory. The entries are in ascending order, and no two have memory in common.
type known[V any] struct {
	all  []knownPart[V]
	next int // of them, where another takes the place of one
}

// knownPart is some memory, and what is known of it.
type knownPart[V any] struct {
	extent
	is V
}

// note takes note of what is in an extent. With more entries than most, the new one takes the place of another.
func (k *known[V]) note(e extent, is V, most int) {
	k.forget(e)
	if e.first == e.last {
		return
	}
	if len(k.all) >= most {
		k.next %= most
		k.all = slices.Delete(k.all, k.next, k.next+1)
		k.next++
	}
	at, _ := k.find(e)
	k.all = slices.Insert(k.all, at, knownPart[V]{e, is})
}

// find is where an extent has its place, and whether an entry has memory of it.
func (k *known[V]) find(e extent) (at int, meets bool) {
	at, _ = slices.BinarySearchFunc(k.all, e.first, func(p knownPart[V], first uint64) int { return cmp.Compare(p.last, first+1) })
	return at, at < len(k.all) && k.all[at].meets(e)
}

// forget drops what has memory of an extent.
func (k *known[V]) forget(e extent) {
	for at, meets := k.find(e); meets; at, meets = k.find(e) {
		k.all = slices.Delete(k.all, at, at+1)
	}
}

// of is what is known of all of an extent.
func (k *known[V]) of(e extent) (is V, ok bool) {
	at, meets := k.find(e)
	if !meets || k.all[at].first > e.first || k.all[at].last < e.last {
		return is, false
	}
	return k.all[at].is, true
}

// passedBut takes note of an operation: it may write where it has an operand, except for the one that it only reads.
func (k *known[V]) passedBut(o *tensorops.Op, reads tensorops.Tensor) {
	for _, t := range o.T {
		if t.Valid() && !t.Same(reads) {
			k.forget(extentOf(t))
		}
	}
}
