package cuda

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// checkedIDs are the token ids on the device that the host has looked at when it brought them
// there, so that nothing has to wait for a kernel to find a bad one. A tensor of ids is known from its
// upload until an operation has something else in its memory. Ids that came in another way are
// looked at where they are used: see lookUp.
type checkedIDs struct {
	known []idRange // in ascending order, and no two have memory in common
	next  int       // of the known ones, where another takes the place of one
}

// idRange is the memory of some ids, and the least and the largest of them but for
// tensorops.IgnoreTarget.
type idRange struct {
	extent
	least, most int32
	ignored     bool // some are IgnoreTarget
}

// uploaded takes note of what was brought to the device.
func (c *checkedIDs) uploaded(to tensorops.Tensor, from []byte) {
	e := extentOf(to)
	c.forget(e)
	if to.DType() != tensorops.Int32 || e.first == e.last || len(from) == 0 {
		return
	}
	r := idRange{extent: e, least: 1<<31 - 1, most: -1 << 31}
	for ; len(from) >= 4; from = from[4:] {
		id := int32(binary.NativeEndian.Uint32(from))
		if id == tensorops.IgnoreTarget {
			r.ignored = true
			continue
		}
		r.least, r.most = min(r.least, id), max(r.most, id)
	}
	if len(c.known) == limitCheckedIDs {
		c.next %= limitCheckedIDs
		c.known = slices.Delete(c.known, c.next, c.next+1)
		c.next++
	}
	at, _ := c.find(e)
	c.known = slices.Insert(c.known, at, r)
}

// find is where an extent has its place, and whether something known has memory of it.
func (c *checkedIDs) find(e extent) (at int, meets bool) {
	at, _ = slices.BinarySearchFunc(c.known, e.first, func(r idRange, first uint64) int { return cmp.Compare(r.last, first+1) })
	return at, at < len(c.known) && c.known[at].meets(e)
}

// forget drops what has memory of an extent.
func (c *checkedIDs) forget(e extent) {
	for at, meets := c.find(e); meets; at, meets = c.find(e) {
		c.known = slices.Delete(c.known, at, at+1)
	}
}

// good reports whether all that an operation looks up is known to be there.
func (c *checkedIDs) good(o *tensorops.Op, l lookup) bool {
	e := extentOf(l.ids)
	if e.first == e.last {
		return false
	}
	at, meets := c.find(e)
	if !meets || c.known[at].first > e.first || c.known[at].last < e.last {
		return false
	}
	r := c.known[at]
	return r.least >= 0 && int(r.most) < l.vocabulary && (!r.ignored || ignores(o))
}

// passed takes note of an operation: what has other operands in the memory of ids may write
// there.
func (c *checkedIDs) passed(o *tensorops.Op) {
	if len(c.known) == 0 {
		return
	}
	ids := idsOf(o)
	for _, t := range o.T {
		if t.Valid() && !t.Same(ids) {
			c.forget(extentOf(t))
		}
	}
}

// idsOf are the ids that an operation reads.
func idsOf(o *tensorops.Op) tensorops.Tensor {
	if o.Kind == tensorops.KindCrossEntropyJoin { // whose part before it has looked them up
		return o.CrossEntropyJoin().Targets
	}
	l, _ := lookupOf(o)
	return l.ids
}

// ignores reports whether what an operation looks up may be tensorops.IgnoreTarget.
func ignores(o *tensorops.Op) bool {
	return o.Kind == tensorops.KindCrossEntropy || o.Kind == tensorops.KindCrossEntropyPart
}
