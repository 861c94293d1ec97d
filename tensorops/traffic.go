package tensorops

// Traffic counts what a member of a group sends for the collectives of a list.
type Traffic struct {
	Collectives int
	Bytes       int64
}

// Traffic counts a list's collectives, and the bytes that this member sends for them if all members
// send equal amounts: the amount of the best algorithm. In a dry run it shows what a step would
// send.
func (l *List) Traffic() (t Traffic) {
	for i := range l.ops {
		if l.ops[i].Kind != KindCollective {
			continue
		}
		a := l.ops[i].Collective()
		n := int64(a.Group.Size())
		if n <= 1 {
			continue
		}
		t.Collectives++
		if a.What == Barrier {
			continue
		}
		src := int64(a.Src.Len() * a.Src.DType().Size())
		switch a.What {
		case AllReduce:
			t.Bytes += 2 * src * (n - 1) / n
		case ReduceScatter, AllToAll, AllToAllV, Broadcast: // a broadcast is passed on in pieces, from one member to the next
			t.Bytes += src * (n - 1) / n
		case AllGather:
			t.Bytes += src * (n - 1)
		default:
			t.Bytes += src
		}
	}
	return t
}
