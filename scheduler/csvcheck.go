package scheduler

import "math"

// checkStages says that every stage up to the highest stands on some row. A row that
// was forgotten shows here.
func (s *sheet) checkStages() error {
	t := s.table
	// Of more stages than actions, one of the first lacks.
	holds := make([]bool, min(t.NumStages, t.numActions()+1))
	for _, row := range t.Ranks {
		for _, a := range row {
			if int(a.Stage) < len(holds) {
				holds[a.Stage] = true
			}
		}
	}
	for lacking, held := range holds {
		if held {
			continue
		}
		at, a := s.find(func(_ int, a Action) bool { return int(a.Stage) > lacking })
		return s.failAt(at, "", ErrIncomplete, "%v, but no row holds stage %d: is a row missing?", a, lacking)
	}
	return nil
}

// find returns the first action, row by row, for which a condition holds. There is one.
func (s *sheet) find(condition func(rank int, a Action) bool) (spot, Action) {
	for r, row := range s.table.Ranks {
		for i, a := range row {
			if condition(r, a) {
				return s.at(r, i), a
			}
		}
	}
	panic("scheduler: no such action in the sheet")
}

// choosePlacement finds the placement that puts every stage on its row. Without one,
// the error goes by that which comes closest.
func (s *sheet) choosePlacement() error {
	t := s.table
	least := math.MaxInt
	for p := Loop; p <= U; p++ {
		if p.fits(t.NumStages, t.NumRanks()) != nil {
			continue
		}
		if n := s.misplaced(p); n < least {
			least, t.Placement = n, p
		}
	}
	switch least {
	case 0:
		return nil
	case math.MaxInt:
		at, a := s.find(func(_ int, a Action) bool { return int(a.Stage) == t.NumStages-1 })
		return s.failAt(at, "", ErrTable,
			"%v makes %d stages on %d rows: placement loop needs a multiple of the rows, V twice as many, U one more",
			a, t.NumStages, t.NumRanks())
	}
	at, a := s.find(func(rank int, a Action) bool { return t.RankOf(int(a.Stage)) != rank })
	return s.failAt(at, "", ErrRank, "%v is on rank %d, but stage %d is on rank %d in placement %v, which fits the rows best",
		a, at.rank, a.Stage, t.RankOf(int(a.Stage)), t.Placement)
}

func (s *sheet) misplaced(p Placement) int {
	n := 0
	for r, row := range s.table.Ranks {
		for _, a := range row {
			if p.Rank(int(a.Stage), s.table.NumRanks()) != r {
				n++
			}
		}
	}
	return n
}

// checkOnce says that no action is done twice, and notes where each stands.
func (s *sheet) checkOnce() error {
	t := s.table
	// A table that claims more visits than it has actions lacks one among the first
	// numActions+1, so memory needs to grow with the actions only.
	visits := int(min(int64(t.NumStages)*int64(t.Microbatches), int64(t.numActions())+1))
	for k := range s.steps {
		s.steps[k] = make([]int32, visits)
	}
	for r, row := range t.Ranks {
		for i, a := range row {
			visit := int64(a.Stage)*int64(t.Microbatches) + int64(a.Microbatch)
			if visit >= int64(visits) {
				continue
			}
			for k := range s.steps {
				if stepsOf[a.Type]&(1<<k) == 0 {
					continue
				}
				if before := s.steps[k][visit]; before != 0 {
					return s.failAt(s.at(r, i), "", ErrDuplicate, "%v has been done before, in column %d", a, before)
				}
				s.steps[k][visit] = s.columns[r][i]
			}
		}
	}
	return nil
}

// checkComplete says that every action is there.
func (s *sheet) checkComplete() error {
	t := s.table
	for visit := range s.steps[0] {
		var lacking steps
		for k := range s.steps {
			if s.steps[k][visit] == 0 {
				lacking |= 1 << k
			}
		}
		if t.ForwardOnly {
			lacking &= stepF
		}
		if lacking == 0 {
			continue
		}
		a := Action{Stage: int32(visit / t.Microbatches), Type: firstStep(lacking), Microbatch: int32(visit % t.Microbatches)}
		at := s.gap(a)
		return s.failAt(at, a.String(), ErrIncomplete, "%v is missing on rank %d", a, at.rank)
	}
	return nil
}

// gap is where a missing action would be expected: behind the last one of its kind for
// an earlier microbatch, or of its microbatch.
func (s *sheet) gap(a Action) spot {
	at := spot{s.table.RankOf(int(a.Stage)), 1}
	for i, b := range s.table.Ranks[at.rank] {
		if b.Stage == a.Stage && (b.Type == a.Type && b.Microbatch < a.Microbatch || b.Microbatch == a.Microbatch) {
			at.column = s.columns[at.rank][i] + 1
		}
	}
	return at
}

// checkOrder says that each rank does a microbatch's F before its I, and I before W.
// From here on the sheet is complete.
func (s *sheet) checkOrder() error {
	for r, row := range s.table.Ranks {
		for i, a := range row {
			k := 0 // the step it needs
			switch needs(a.Type) {
			case 0:
				continue
			case stepI:
				k = 1
			}
			at := s.at(r, i)
			if needed := s.steps[k][s.visit(int(a.Stage), int(a.Microbatch))]; needed > at.column {
				return s.failAt(at, "", ErrOrder, "%v comes before %v, which is in column %d", a, s.step(k, int(a.Stage), int(a.Microbatch)), needed)
			}
		}
	}
	return nil
}

// step returns the action that does a step.
func (s *sheet) step(k, stage, microbatch int) Action {
	a := Action{Stage: int32(stage), Type: [...]Type{F, I, W}[k], Microbatch: int32(microbatch)}
	visit := s.visit(stage, microbatch)
	if k > 0 && s.steps[1][visit] == s.steps[2][visit] {
		a.Type = B
	}
	return a
}
