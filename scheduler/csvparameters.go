package scheduler

// parameters is what the cells so far say about the parameters of one stage.
type parameters struct {
	unsharded, resharded int32 // column of the last UNSHARD or RESHARD, 0: none
	used                 int32 // column of the last action
	reduced              int32 // column of REDUCE_GRAD
}

// whole says whether they are gathered on the rank.
func (p parameters) whole() bool { return p.unsharded > p.resharded }

// checkParameters checks the collectives. A stage that gathers its parameters does so
// before it computes, and again after each time that it lets go of them; a stage that
// never does holds them all the time. Gradients are reduced once, when the last is
// there. Each stage stands on one rank, so the columns can be compared.
func (s *sheet) checkParameters() error {
	var stages []parameters // nil as long as there is no collective
	for rank, others := range s.others {
		for _, c := range others {
			if !c.op.isTransfer() && stages == nil {
				stages = make([]parameters, s.table.NumStages)
			}
		}
		if stages == nil {
			continue
		}
		var at cursor
		for c, ok := s.next(rank, at); ok; c, ok = s.next(rank, at) {
			if err := s.checkUse(stages, c); err != nil {
				return err
			}
			at = c.beyond
		}
	}
	return nil
}

func (s *sheet) checkUse(stages []parameters, c sheetCell) error {
	for _, a := range c.actions {
		p := &stages[a.Stage]
		switch {
		case p.resharded != 0 && !p.whole():
			return s.failAt(c.spot, "", ErrOrder, "%v has no %dUNSHARD since the %dRESHARD in column %d", a, a.Stage, a.Stage, p.resharded)
		case p.reduced != 0 && stepsOf[a.Type]&stepW != 0:
			return s.failAt(c.spot, "", ErrOrder, "%v comes after %dREDUCE_GRAD, which is in column %d and needs its gradient", a, a.Stage, p.reduced)
		}
		p.used = c.column
	}
	if c.actions != nil || c.other.op.isTransfer() {
		return nil
	}

	p, other := &stages[c.other.stage], c.other
	switch other.op {
	case opUnshard:
		if p.whole() {
			return s.failAt(c.spot, "", ErrDuplicate, "%v has been done before, in column %d, and not undone since", other, p.unsharded)
		}
		if p.unsharded == 0 && p.used != 0 {
			return s.failAt(c.spot, "", ErrOrder, "%v comes after an action of stage %d, in column %d", other, other.stage, p.used)
		}
		p.unsharded = c.column
	case opReshard:
		if !p.whole() && p.resharded != 0 {
			return s.failAt(c.spot, "", ErrDuplicate, "%v has been done before, in column %d", other, p.resharded)
		}
		if !p.whole() {
			return s.failAt(c.spot, "", ErrOrder, "%v has no %dUNSHARD before it", other, other.stage)
		}
		p.resharded = c.column
	case opReduceGrad:
		if s.table.ForwardOnly {
			return s.failAt(c.spot, "", ErrTable, "%v in a table without backwards", other)
		}
		if p.reduced != 0 {
			return s.failAt(c.spot, "", ErrDuplicate, "%v has been done before, in column %d", other, p.reduced)
		}
		p.reduced = c.column
	}
	return nil
}
