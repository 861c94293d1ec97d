package scheduler

import "fmt"

// checkTransfers says that each communication stands on the rank of its stage, and each
// send and receive on an edge between ranks, once, and on the right side of its
// action. It notes where they stand.
func (s *sheet) checkTransfers() error {
	t := s.table
	if s.has(Type.isTransfer) {
		for k := range s.index.sends {
			s.index.sends[k] = matrix(t.NumStages, t.Microbatches)
			s.index.receives[k] = matrix(t.NumStages, t.Microbatches)
		}
	}
	for at, a := range s.cells {
		if a.Type <= B {
			continue
		}
		switch home := t.RankOf(int(a.Stage)); {
		case int(a.Stage) >= t.NumStages:
			return s.fail(at, ErrTable, "%v, but the stages that compute are 0 to %d: is a row missing?", a, t.NumStages-1)
		case home != at.rank:
			return s.fail(at, ErrRank, "%v is on rank %d, but stage %d is on rank %d", a, at.rank, a.Stage, home)
		case int(a.Microbatch) >= t.Microbatches:
			return s.fail(at, ErrTable, "%v, but the microbatches are 0 to %d", a, t.Microbatches-1)
		}
		if a.Type.isTransfer() {
			if err := s.checkTransfer(at, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sheet) checkTransfer(at place, a Action) error {
	t, kind, send := s.table, a.Type.transferEdge(), a.Type.isSend()
	if t.ForwardOnly && kind == BackwardEdge {
		return s.fail(at, ErrTable, "%v in a table without backwards", a)
	}
	peer, exists := kind.from(int(a.Stage), t.NumStages)
	list := s.index.receives[kind]
	if send {
		peer, exists = kind.to(int(a.Stage), t.NumStages)
		list = s.index.sends[kind]
	}
	switch {
	case !exists && a.Stage == 0 && peer < 0:
		return s.fail(at, ErrTable, "%v, but there is no stage before stage 0: leave it out", a)
	case !exists:
		return s.fail(at, ErrTable, "%v, but stage %d is the last: is a row missing?", a, a.Stage)
	case t.RankOf(peer) == at.rank:
		return s.fail(at, ErrTable, "%v, but stages %d and %d are on the same rank, and nothing is sent: leave it out", a, a.Stage, peer)
	}

	position := &list[a.Stage][a.Microbatch]
	if *position != 0 {
		return s.fail(at, ErrDuplicate, "%v has been done before, in column %d", a, s.columns[at.rank][*position-1])
	}
	*position = int32(at.position) + 1

	action := s.index.at(t, kind, a.Stage, a.Microbatch)
	b := t.Ranks[action.rank][action.position]
	switch {
	case send && at.position < action.position:
		return s.fail(at, ErrOrder, "%v comes before %v, whose output it sends, in column %d", a, b, s.column(action))
	case !send && at.position > action.position:
		return s.fail(at, ErrOrder, "%v comes after %v, which needs it, in column %d", a, b, s.column(action))
	}
	return nil
}

// checkMatches says that every output that leaves its rank has its send and its
// receive, in a file that has any.
func (s *sheet) checkMatches() error {
	t := s.table
	if s.index.sends[ForwardEdge] == nil {
		return nil
	}
	for at, a := range s.cells {
		kind, ok := a.Type.edge()
		if !ok {
			continue
		}
		to, ok := kind.to(int(a.Stage), t.NumStages)
		if !ok || t.RankOf(to) == at.rank {
			continue
		}
		if err := s.checkMatch(at, a, kind, to); err != nil {
			return err
		}
	}
	return nil
}

// checkMatch looks at the transfers of an action's output.
func (s *sheet) checkMatch(at place, a Action, kind EdgeKind, to int) error {
	rank := s.table.RankOf(to)
	send := Action{Stage: a.Stage, Type: sendOn(kind), Microbatch: a.Microbatch}
	receive := Action{Stage: int32(to), Type: receiveOn(kind), Microbatch: a.Microbatch}
	sent := int(s.index.sends[kind][send.Stage][a.Microbatch])
	received := int(s.index.receives[kind][receive.Stage][a.Microbatch])
	switch {
	case sent != 0 && received == 0:
		return s.fail(place{at.rank, sent - 1}, ErrIncomplete, "%v has no %v on rank %d", send, receive, rank)
	case sent == 0 && received != 0:
		return s.fail(place{rank, received - 1}, ErrIncomplete, "%v has no %v on rank %d", receive, send, at.rank)
	case sent == 0:
		f := s.table.fault(ErrIncomplete, at.rank, at.position+1, fmt.Sprintf(
			"%v has no %v after it, and rank %d no %v: a file with sends and receives needs all of them, or none", a, send, rank, receive))
		f.missing = send.String()
		return f
	}
	return nil
}
