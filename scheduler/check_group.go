package scheduler

import "fmt"

// checkGroup returns what is wrong with the actions that run as one from i on, and at which position.
func (t *Table) checkGroup(row []Action, i int) (at int, text string) {
	group := row[i : i+Width(row, i)]
	switch last := len(group) - 1; {
	case group[last].Overlap:
		return i + last, fmt.Sprintf("%v overlaps with the next action, but the row ends here", group[last])
	case last == 0 && group[0].Part > 0:
		return i, fmt.Sprintf("%v stands alone: the parts of an action run as one", group[0])
	case last == 0 && group[0].Type.IsExchange():
		return i, fmt.Sprintf("%v stands alone: an exchange of tokens stands between the parts of an action", group[0])
	case last == 0:
		return i, ""
	case group[0].Part > 0:
		k, text := checkParts(group)
		return i + k, text
	}
	a, b := group[0], group[1]
	if a.Type != F || b.Type != B && b.Type != I || b.Overlap || b.Part > 0 || b.Chunk == a.Chunk && b.Microbatch == a.Microbatch {
		return i, fmt.Sprintf("%v cannot overlap with %v: a pair must be a forward followed by the B or I of another microbatch or chunk", a, b)
	}
	return i, ""
}

// checkParts checks a forward, a backward, or one of each that are cut into parts. The parts of each
// are 1, 2, … with an exchange between two, the exchange k after part k. Those of the two may
// stand between each other in any order.
func checkParts(group []Action) (at int, text string) {
	type pass struct {
		of        Action // its first part
		part      uint16 // the last one that was seen
		exchanged bool   // the exchange after it was seen
		out       int    // dispatches without a combine
	}
	var passes [2]pass // the forward, the backward
	for k, a := range group {
		side, exchange := &passes[0], a.Type.IsExchange()
		if !a.Type.IsForward() {
			side = &passes[1]
		}
		first := side.part == 0
		switch {
		case a.Part == 0:
			return k, fmt.Sprintf("%v is whole, but stands among the parts of others", a)
		case a.Type == W:
			return k, fmt.Sprintf("%v stands among the parts of others, but a weight gradient has no parts", a)
		case first && (exchange || a.Part != 1):
			return k, fmt.Sprintf("%v comes before the first part of its action", a)
		case !first && (a.Chunk != side.of.Chunk || a.Microbatch != side.of.Microbatch || !exchange && a.Type != side.of.Type):
			return k, fmt.Sprintf("%v stands among the parts of %v: at most one forward and one backward run as one", a, side.of)
		case exchange && (a.Part != side.part || side.exchanged):
			return k, fmt.Sprintf("%v does not follow part %d of its action", a, a.Part)
		case !exchange && !first && (a.Part != side.part+1 || !side.exchanged):
			return k, fmt.Sprintf("%v does not follow the exchange after part %d of its action", a, a.Part-1)
		}
		switch {
		case !exchange:
			if first {
				side.of = a
			}
			side.part, side.exchanged = a.Part, false
		default:
			side.exchanged = true
			if a.Type == FD || a.Type == BD {
				side.out++
			} else if side.out--; side.out < 0 {
				return k, fmt.Sprintf("%v brings back tokens that no dispatch before it has sent", a)
			}
		}
	}
	for _, p := range passes {
		if p.exchanged {
			return len(group) - 1, fmt.Sprintf("%v has no part %d, which follows its last exchange", p.of, p.part+1)
		}
	}
	if f, b := passes[0], passes[1]; f.part > 0 && b.part > 0 && f.of.Chunk == b.of.Chunk && f.of.Microbatch == b.of.Microbatch {
		return len(group) - 1, fmt.Sprintf("%v depends on %v, so they cannot run together", b.of, f.of)
	}
	return 0, ""
}
