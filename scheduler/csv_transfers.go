package scheduler

import "fmt"

// checkTransfers checks each communication: it stands on the rank of its chunk; and each send,
// receive and wait for a send belongs to an edge between two ranks, occurs once, and stands on the
// correct side of its action or send. It notes their positions.
func (s *csvTable) checkTransfers() error {
	t, waits := s.table, s.has(Type.isWaitSend)
	if waits || s.has(Type.isTransfer) {
		for k := range s.index.sends {
			s.index.sends[k] = matrix(t.NumChunks, t.Microbatches)
			s.index.receives[k] = matrix(t.NumChunks, t.Microbatches)
			if waits {
				s.index.waits[k] = matrix(t.NumChunks, t.Microbatches)
			}
		}
	}
	for at, a := range s.cells {
		if !a.Type.isCommunication() {
			continue
		}
		switch home := t.RankOf(int(a.Chunk)); {
		case int(a.Chunk) >= t.NumChunks:
			return s.fail(at, ErrTable, "%v, but actions exist only for chunks 0 to %d; check whether a row is missing", a, t.NumChunks-1)
		case home != at.rank:
			return s.fail(at, ErrRank, "%v is on rank %d, but chunk %d is on rank %d", a, at.rank, a.Chunk, home)
		case int(a.Microbatch) >= t.Microbatches:
			return s.fail(at, ErrTable, "%v, but the microbatches are 0 to %d", a, t.Microbatches-1)
		}
		if a.Type.isTransfer() || a.Type.isWaitSend() {
			if err := s.checkTransfer(at, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *csvTable) checkTransfer(at place, a Action) error {
	t, kind, send, wait := s.table, a.Type.transferEdge(), a.Type.isSend(), a.Type.isWaitSend()
	if len(s.skips) > 0 {
		return s.fail(at, ErrTable,
			"%v, but the model has skip edges, the first %v, which sends and receives in a file cannot express: remove all sends and receives from the file; they follow from the order", a, s.skips[0])
	}
	if t.ForwardOnly && kind == BackwardEdge {
		return s.fail(at, ErrTable, "%v stands in a table without backwards", a)
	}
	peer, exists := kind.from(int(a.Chunk), t.NumChunks)
	list := s.index.receives[kind]
	if send || wait {
		peer, exists = kind.to(int(a.Chunk), t.NumChunks)
		list = s.index.sends[kind]
	}
	if wait {
		list = s.index.waits[kind]
	}
	switch {
	case !exists && a.Chunk == 0 && peer < 0:
		return s.fail(at, ErrTable, "%v, but there is no chunk before chunk 0: remove it", a)
	case !exists:
		return s.fail(at, ErrTable, "%v, but chunk %d is the last; check whether a row is missing", a, a.Chunk)
	case t.RankOf(peer) == at.rank:
		return s.fail(at, ErrTable, "%v, but chunks %d and %d are on the same rank, so nothing is sent: remove it", a, a.Chunk, peer)
	}

	position := &list[a.Chunk][a.Microbatch]
	if *position != 0 {
		return s.fail(at, ErrDuplicate, "%v already stands in column %d", a, s.columns[at.rank][*position-1])
	}
	*position = int32(at.position) + 1

	if wait {
		if s.index.sends[kind][a.Chunk][a.Microbatch] == 0 { // the earlier ones of the same row
			return s.fail(at, ErrOrder, "%v has no %v before it", a, Action{Chunk: a.Chunk, Type: sendOn(kind), Microbatch: a.Microbatch})
		}
		return nil
	}
	action := s.index.at(t, kind, a.Chunk, a.Microbatch)
	b := t.Ranks[action.rank][action.position]
	switch {
	case send && at.position < action.position:
		return s.fail(at, ErrOrder, "%v comes before %v, whose output it sends, in column %d", a, b, s.column(action))
	case !send && at.position > action.position:
		return s.fail(at, ErrOrder, "%v comes after %v, which needs it, in column %d", a, b, s.column(action))
	}
	return nil
}

// checkMatches checks that every output that leaves its rank has its send and its receive, if the
// file has any of these, and its wait, if the file has any waits.
func (s *csvTable) checkMatches() error {
	t := s.table
	if s.index.sends[ForwardEdge] == nil {
		return nil
	}
	for at, a := range s.cells {
		kind, ok := a.Type.edge()
		if !ok {
			continue
		}
		to, ok := kind.to(int(a.Chunk), t.NumChunks)
		if !ok || t.RankOf(to) == at.rank {
			continue
		}
		if err := s.checkMatch(at, a, kind, to); err != nil {
			return err
		}
	}
	return nil
}

// checkMatch checks the transfers of one action's output.
func (s *csvTable) checkMatch(at place, a Action, kind EdgeKind, to int) error {
	rank := s.table.RankOf(to)
	send := Action{Chunk: a.Chunk, Type: sendOn(kind), Microbatch: a.Microbatch}
	receive := Action{Chunk: int32(to), Type: receiveOn(kind), Microbatch: a.Microbatch}
	sent := int(s.index.sends[kind][send.Chunk][a.Microbatch])
	received := int(s.index.receives[kind][receive.Chunk][a.Microbatch])
	switch {
	case sent != 0 && received == 0:
		return s.fail(place{at.rank, sent - 1}, ErrIncomplete, "%v has no %v on rank %d", send, receive, rank)
	case sent == 0 && received != 0:
		return s.fail(place{rank, received - 1}, ErrIncomplete, "%v has no %v on rank %d", receive, send, at.rank)
	case sent == 0:
		f := s.table.fault(ErrIncomplete, at.rank, at.position+1, fmt.Sprintf(
			"%v has no %v after it, and rank %d no %v: a file must have all sends and receives or none", a, send, rank, receive))
		f.missing = send.String()
		return f
	}
	if waits := s.index.waits[kind]; waits != nil && waits[a.Chunk][a.Microbatch] == 0 {
		return s.fail(place{at.rank, sent - 1}, ErrIncomplete, "%v has no %v after it: a file must wait for every send or for none",
			send, Action{Chunk: a.Chunk, Type: waitSendOn(kind), Microbatch: a.Microbatch})
	}
	return nil
}
