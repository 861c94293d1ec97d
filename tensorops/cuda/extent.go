package cuda

import (
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// extent is the memory from a tensor's first element to its last, with what lies between
// the rows of a view. None and an empty tensor have none.
type extent struct{ first, last uint64 }

func extentOf(t tensorops.Tensor) extent {
	if !t.Valid() || t.Len() == 0 {
		return extent{address(t), address(t)}
	}
	from, to := t.ByteRange()
	return extent{t.Buffer().Addr + uint64(from), t.Buffer().Addr + uint64(to)}
}

// meets reports whether two have memory in common.
func (e extent) meets(other extent) bool {
	return e.first < other.last && other.first < e.last && e.first < e.last && other.first < other.last
}

// extents are in ascending order, and no two have memory in common.
type extents []extent

// add adds the memory of tensors. It is false, and the list of no more use, if any of it is
// there already: then the operation depends on one before.
func (a *extents) add(tensors ...tensorops.Tensor) bool {
	for _, t := range tensors {
		e := extentOf(t)
		if e.first == e.last {
			continue
		}
		at, _ := slices.BinarySearchFunc(*a, e.first, func(other extent, first uint64) int {
			if other.last <= first {
				return -1
			}
			return 1
		})
		if at < len(*a) && (*a)[at].meets(e) {
			return false
		}
		*a = slices.Insert(*a, at, e)
	}
	return true
}
