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
	if !s.has(Type.isCollective) {
		return nil
	}
	stages := make([]parameters, s.table.NumStages)
	for at, a := range s.cells {
		var err error
		switch p := &stages[a.Stage]; {
		case a.Type <= B:
			err = s.checkUse(p, at, a)
		case a.Type.isCollective():
			err = s.checkCollective(p, at, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// has says whether the file has a cell of some type.
func (s *sheet) has(some func(Type) bool) bool {
	for _, a := range s.cells {
		if some(a.Type) {
			return true
		}
	}
	return false
}

func (s *sheet) checkUse(p *parameters, at place, a Action) error {
	switch {
	case p.resharded != 0 && !p.whole():
		return s.fail(at, ErrOrder, "%v has no %dUNSHARD since the %dRESHARD in column %d", a, a.Stage, a.Stage, p.resharded)
	case p.reduced != 0 && stepsOf[a.Type]&stepW != 0:
		return s.fail(at, ErrOrder, "%v comes after %dREDUCE_GRAD, which is in column %d and needs its gradient", a, a.Stage, p.reduced)
	}
	p.used = s.column(at)
	return nil
}

func (s *sheet) checkCollective(p *parameters, at place, a Action) error {
	switch a.Type {
	case unshard:
		if p.whole() {
			return s.fail(at, ErrDuplicate, "%v has been done before, in column %d, and not undone since", a, p.unsharded)
		}
		if p.unsharded == 0 && p.used != 0 {
			return s.fail(at, ErrOrder, "%v comes after an action of stage %d, in column %d", a, a.Stage, p.used)
		}
		p.unsharded = s.column(at)
	case reshard:
		if !p.whole() && p.resharded != 0 {
			return s.fail(at, ErrDuplicate, "%v has been done before, in column %d", a, p.resharded)
		}
		if !p.whole() {
			return s.fail(at, ErrOrder, "%v has no %dUNSHARD before it", a, a.Stage)
		}
		p.resharded = s.column(at)
	case reduceGrad:
		if s.table.ForwardOnly {
			return s.fail(at, ErrTable, "%v in a table without backwards", a)
		}
		if p.reduced != 0 {
			return s.fail(at, ErrDuplicate, "%v has been done before, in column %d", a, p.reduced)
		}
		p.reduced = s.column(at)
	}
	return nil
}
