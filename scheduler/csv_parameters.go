package scheduler

// parameters records what the cells read so far say about the parameters of one chunk.
type parameters struct {
	unsharded, resharded int32 // column of the last UNSHARD or RESHARD, 0: none
	used                 int32 // column of the last action
	reduced, waited      int32 // column of REDUCE_GRAD, and of the wait for it
}

// whole reports whether the parameters are gathered on the rank.
func (p parameters) whole() bool { return p.unsharded > p.resharded }

// checkParameters checks the collectives. A chunk that gathers its parameters must gather them
// before it computes, and again after each time that it releases them; a chunk that never gathers
// them holds them all the time. Gradients are reduced once, after the last of them. A file with one
// wait for a reduction must wait for each. Each chunk stands on one rank, so the columns can be
// compared.
func (s *csvTable) checkParameters() error {
	if !s.has(Type.isCollective) {
		return nil
	}
	chunks := make([]parameters, s.table.NumChunks)
	for at, a := range s.cells {
		var err error
		switch p := &chunks[a.Chunk]; {
		case !a.Type.isCommunication():
			err = s.checkUse(p, at, a)
		case a.Type.isCollective():
			err = s.checkCollective(p, at, a)
		}
		if err != nil {
			return err
		}
	}
	if !s.has(func(t Type) bool { return t == waitReduceGrad }) {
		return nil
	}
	for at, a := range s.cells {
		if a.Type == reduceGrad && chunks[a.Chunk].waited == 0 {
			return s.fail(at, ErrIncomplete, "%v has no %v after it: a file must wait for every reduction or for none", a,
				Action{Chunk: a.Chunk, Type: waitReduceGrad})
		}
	}
	return nil
}

// has reports whether the file has a cell of a type.
func (s *csvTable) has(some func(Type) bool) bool {
	for _, a := range s.cells {
		if some(a.Type) {
			return true
		}
	}
	return false
}

func (s *csvTable) checkUse(p *parameters, at place, a Action) error {
	switch {
	case p.resharded != 0 && !p.whole():
		return s.fail(at, ErrOrder, "%v has no %dUNSHARD since the %dRESHARD in column %d", a, a.Chunk, a.Chunk, p.resharded)
	case p.reduced != 0 && stepsOf[a.Type]&stepW != 0:
		return s.fail(at, ErrOrder, "%v comes after %dREDUCE_GRAD, which is in column %d and needs its gradient", a, a.Chunk, p.reduced)
	}
	p.used = s.column(at)
	return nil
}

func (s *csvTable) checkCollective(p *parameters, at place, a Action) error {
	switch a.Type {
	case unshard:
		if p.whole() {
			return s.fail(at, ErrDuplicate, "%v already stands in column %d, and nothing released the parameters since", a, p.unsharded)
		}
		if p.unsharded == 0 && p.used != 0 {
			return s.fail(at, ErrOrder, "%v comes after an action of chunk %d, in column %d", a, a.Chunk, p.used)
		}
		p.unsharded = s.column(at)
	case reshard:
		if !p.whole() && p.resharded != 0 {
			return s.fail(at, ErrDuplicate, "%v already stands in column %d", a, p.resharded)
		}
		if !p.whole() {
			return s.fail(at, ErrOrder, "%v has no %dUNSHARD before it", a, a.Chunk)
		}
		p.resharded = s.column(at)
	case reduceGrad:
		if s.table.ForwardOnly {
			return s.fail(at, ErrTable, "%v stands in a table without backwards", a)
		}
		if p.reduced != 0 {
			return s.fail(at, ErrDuplicate, "%v already stands in column %d", a, p.reduced)
		}
		p.reduced = s.column(at)
	case waitReduceGrad:
		if p.reduced == 0 {
			return s.fail(at, ErrOrder, "%v has no %v before it", a, Action{Chunk: a.Chunk, Type: reduceGrad})
		}
		if p.waited != 0 {
			return s.fail(at, ErrDuplicate, "%v already stands in column %d", a, p.waited)
		}
		p.waited = s.column(at)
	}
	return nil
}
