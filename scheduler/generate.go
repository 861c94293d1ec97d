package scheduler

// Generate makes the table of a spec. Backwards run in ascending microbatch
// order on every stage, so that a chunk's weight gradients add up in the same
// order under every schedule.
func Generate(s Spec) (*Table, error) {
	s, err := s.resolve()
	if err != nil {
		return nil, err
	}
	t := &Table{
		Schedule:     s.Schedule,
		Placement:    Loop,
		NumStages:    s.Ranks * s.Chunks,
		Microbatches: s.Microbatches,
		ForwardOnly:  s.ForwardOnly,
		Ranks:        make([][]Action, s.Ranks),
	}
	visits := s.visits()
	for rank := range t.Ranks {
		t.Ranks[rank] = s.order(rank, visits)
	}
	return t, nil
}

// visit is one microbatch's way through one of a rank's chunks.
type visit struct{ microbatch, chunk int }

// visits lists the visits of a rank in the order of its forwards: a group of
// microbatches passes through the first chunk, then the same group through the
// next chunk, and after the last chunk comes the next group. It is the same for
// all ranks. With the chunks counted backwards it is also the order of the
// backwards.
func (s Spec) visits() []visit {
	group := s.Group
	if s.Schedule != Interleaved {
		group = 1 // one microbatch after the other
	}
	list := make([]visit, 0, s.Microbatches*s.Chunks)
	for first := 0; first < s.Microbatches; first += group {
		beyond := min(first+group, s.Microbatches)
		for chunk := range s.Chunks {
			for m := first; m < beyond; m++ {
				list = append(list, visit{m, chunk})
			}
		}
	}
	return list
}

// order lays the visits of one rank out: first the warm-up, which fills the
// pipeline, then forwards and backwards in turn, then the backwards that are
// left.
func (s Spec) order(rank int, visits []visit) []Action {
	forward := func(v visit) Action {
		return Action{int32(v.chunk*s.Ranks + rank), F, int32(v.microbatch)}
	}
	backward := func(v visit) Action {
		return Action{int32((s.Chunks-1-v.chunk)*s.Ranks + rank), B, int32(v.microbatch)}
	}
	if s.ForwardOnly {
		row := make([]Action, 0, len(visits))
		for _, v := range visits {
			row = append(row, forward(v))
		}
		return row
	}

	warmUp, turn := s.warmUp(rank), 1
	if s.Schedule == None {
		warmUp, turn = 0, s.Chunks // a microbatch goes all the way up and down
	}
	row := make([]Action, 0, 2*len(visits))
	up, down := 0, 0 // visits done forwards and backwards
	for ; up < warmUp; up++ {
		row = append(row, forward(visits[up]))
	}
	for up < len(visits) {
		for range turn {
			row = append(row, forward(visits[up]))
			up++
		}
		for range turn {
			row = append(row, backward(visits[down]))
			down++
		}
	}
	for ; down < len(visits); down++ {
		row = append(row, backward(visits[down]))
	}
	return row
}

// WarmUp returns how many chunk forwards a rank runs ahead of its backwards, for
// a spec that Generate accepts. The rank holds at most one output more than that.
// Where no backward comes between forwards, all of them are warm-up.
func WarmUp(s Spec, rank int) int { return s.withDefaults().warmUp(rank) }

func (s Spec) warmUp(rank int) int {
	all := s.Microbatches * s.Chunks
	if s.ForwardOnly {
		return all
	}
	below := s.Ranks - 1 - rank // ranks between this one and the loss
	switch s.Schedule {
	case None:
		return s.Chunks - 1
	case OneFOneB:
		return min(below, all)
	case Interleaved:
		// Each rank below takes a forward and gives a backward before its turn
		// comes back, and all chunks but the last take a group first.
		return min(2*below+(s.Chunks-1)*s.Group, all)
	}
	return all
}
