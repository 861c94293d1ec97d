package cuda

import (
	"encoding/binary"

	"github.com/troupe-ml/troupe/tensorops"
)

// checkedIDs are the token ids on the device that the host has looked at when it brought them
// there, so that nothing has to wait for a kernel to find a bad one. A tensor of ids is known from its
// upload until an operation has something else in its memory. Ids that came in another way are
// looked at where they are used: see lookUp.
type checkedIDs struct{ known[idRange] }

// idRange is the least and the largest of some ids except for tensorops.IgnoreTarget.
type idRange struct {
	least, most int32
	ignored     bool // some are IgnoreTarget
}

// uploaded takes note of what was brought to the device.
func (c *checkedIDs) uploaded(to tensorops.Tensor, from []byte) {
	e := extentOf(to)
	if to.DType() != tensorops.Int32 || len(from) == 0 {
		c.forget(e)
		return
	}
	r := idRange{least: 1<<31 - 1, most: -1 << 31}
	for ; len(from) >= 4; from = from[4:] {
		id := int32(binary.NativeEndian.Uint32(from))
		if id == tensorops.IgnoreTarget {
			r.ignored = true
			continue
		}
		r.least, r.most = min(r.least, id), max(r.most, id)
	}
	c.note(e, r, limitCheckedIDs)
}

// good reports whether all that an operation looks up is known to be there.
func (c *checkedIDs) good(o *tensorops.Op, l lookup) bool {
	r, known := c.of(extentOf(l.ids))
	return known && r.least >= 0 && int(r.most) < l.vocabulary && (!r.ignored || ignores(o))
}

// passed takes note of an operation: what has other operands in the memory of ids may write
// there.
func (c *checkedIDs) passed(o *tensorops.Op) {
	if len(c.all) > 0 {
		c.passedBut(o, idsOf(o))
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
