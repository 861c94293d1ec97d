package scheduler

// checkTransfers says that each communication stands on the rank of its stage, and each
// send and receive on an edge between ranks, once, and on the right side of its
// action. It notes where they stand.
func (s *sheet) checkTransfers() error {
	t := s.table
	if s.hasTransfers() {
		for k := range s.sends {
			s.sends[k] = make([]int32, len(s.steps[0]))
			s.receives[k] = make([]int32, len(s.steps[0]))
		}
	}
	for r, others := range s.others {
		for _, c := range others {
			at := spot{r, c.column}
			switch home := t.RankOf(int(c.stage)); {
			case int(c.stage) >= t.NumStages:
				return s.failAt(at, "", ErrTable, "%v, but the stages that compute are 0 to %d: is a row missing?", c, t.NumStages-1)
			case home != r:
				return s.failAt(at, "", ErrRank, "%v is on rank %d, but stage %d is on rank %d", c, r, c.stage, home)
			case int(c.microbatch) >= t.Microbatches:
				return s.failAt(at, "", ErrTable, "%v, but the microbatches are 0 to %d", c, t.Microbatches-1)
			}
			if c.op.isTransfer() {
				if err := s.checkTransfer(at, c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *sheet) hasTransfers() bool {
	for _, others := range s.others {
		for _, c := range others {
			if c.op.isTransfer() {
				return true
			}
		}
	}
	return false
}

func (s *sheet) checkTransfer(at spot, c communication) error {
	t, kind := s.table, c.op.edge()
	if t.ForwardOnly && kind == BackwardEdge {
		return s.failAt(at, "", ErrTable, "%v in a table without backwards", c)
	}
	peer, exists := s.peer(c)
	if !exists {
		if c.stage == 0 && c.op != opSendF && c.op != opRecvB {
			return s.failAt(at, "", ErrTable, "%v, but there is no stage before stage 0: leave it out", c)
		}
		return s.failAt(at, "", ErrTable, "%v, but stage %d is the last: is a row missing?", c, c.stage)
	}
	if t.RankOf(peer) == at.rank {
		return s.failAt(at, "", ErrTable, "%v, but stages %d and %d are on the same rank, and nothing is sent: leave it out", c, c.stage, peer)
	}

	list := s.receives[kind]
	if c.op.isSend() {
		list = s.sends[kind]
	}
	visit := s.visit(int(c.stage), int(c.microbatch))
	if before := list[visit]; before != 0 {
		return s.failAt(at, "", ErrDuplicate, "%v has been done before, in column %d", c, before)
	}
	list[visit] = at.column

	action, column := s.step(int(kind), int(c.stage), int(c.microbatch)), s.steps[kind][visit]
	switch {
	case c.op.isSend() && at.column < column:
		return s.failAt(at, "", ErrOrder, "%v comes before %v, whose output it sends, in column %d", c, action, column)
	case !c.op.isSend() && at.column > column:
		return s.failAt(at, "", ErrOrder, "%v comes after %v, which needs it, in column %d", c, action, column)
	}
	return nil
}

// peer returns the stage at the other end of a transfer, if there is one.
func (s *sheet) peer(c communication) (int, bool) {
	if c.op.isSend() {
		return c.op.edge().to(int(c.stage), s.table.NumStages)
	}
	return c.op.edge().from(int(c.stage), s.table.NumStages)
}

// checkMatches says that every output that leaves its rank has its send and its
// receive, in a file that has any.
func (s *sheet) checkMatches() error {
	if s.sends[ForwardEdge] == nil {
		return nil
	}
	t := s.table
	for r, row := range t.Ranks {
		for i, a := range row {
			kind, ok := a.Type.edge()
			if !ok {
				continue
			}
			to, ok := kind.to(int(a.Stage), t.NumStages)
			if !ok || t.RankOf(to) == r {
				continue
			}
			send := communication{stage: a.Stage, op: sendOn(kind), microbatch: a.Microbatch}
			send.column = s.sends[kind][s.visit(int(a.Stage), int(a.Microbatch))]
			receive := communication{stage: int32(to), op: receiveOn(kind), microbatch: a.Microbatch}
			receive.column = s.receives[kind][s.visit(to, int(a.Microbatch))]
			if err := s.checkMatch(s.at(r, i), a, send, receive); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMatch looks at the transfers of one output; the action that makes it stands at
// the spot.
func (s *sheet) checkMatch(at spot, a Action, send, receive communication) error {
	rank := s.table.RankOf(int(receive.stage))
	switch {
	case send.column != 0 && receive.column == 0:
		return s.failAt(spot{at.rank, send.column}, "", ErrIncomplete, "%v has no %v on rank %d", send, receive, rank)
	case send.column == 0 && receive.column != 0:
		return s.failAt(spot{rank, receive.column}, "", ErrIncomplete, "%v has no %v on rank %d", receive, send, at.rank)
	case send.column == 0:
		return s.failAt(spot{at.rank, at.column + 1}, send.String(), ErrIncomplete,
			"%v has no %v after it, and rank %d no %v: a file with sends and receives needs all of them, or none", a, send, rank, receive)
	}
	return nil
}
