package stages

import "iter"

// Together is a Passes that records several passes as one: see ActTogether.
type Together interface {
	// Together calls each function, which records a pass of its own microbatch with Act, in the order of ActTogether.
	Together(order []int, passes ...func())
}

// ActTogether records actions that run as one, an overlapped pair, into one list. Each function records one of them with Act. If
// ExpertParallel.Overlap is set, a pass gives way to another one where it has sent tokens to experts, or results back, and would
// wait. order has the index of a pass for each part; nil: that of scheduler.Turns. If Overlap is not set, the functions run one after
// the other. Each pass records its own operations in its own order, so no bit changes.
func ActTogether(p Passes, order []int, passes ...func()) {
	if t, ok := p.(Together); ok && len(passes) > 1 {
		t.Together(order, passes...)
		return
	}
	for _, pass := range passes {
		pass()
	}
}

// turn is a pass that gives way to others.
type turn struct{ yield func(struct{}) bool }

// giveWay records other passes of the list up to where they give way. A pass that is recorded alone continues.
func (c *pass) giveWay() {
	if c.turn == nil {
		return
	}
	defer func(own *PartTimes) { c.stage.times = own }(c.stage.times)
	if !c.turn.yield(struct{}{}) {
		c.turn.yield = func(struct{}) bool { return true } // another pass has failed: record what is left without a break
	}
}

// Together implements the interface of that name.
func (s *Stage) Together(order []int, passes ...func()) {
	if !s.opts.Experts.Overlap {
		for _, pass := range passes {
			pass()
		}
		return
	}
	defer func(before *turn) { s.turn = before }(s.turn)
	type running struct {
		turn *turn
		next func() (struct{}, bool)
		done bool
	}
	var all []running
	for _, pass := range passes {
		r := running{turn: new(turn)}
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			r.turn.yield = yield
			pass()
		})
		defer stop()
		r.next = next
		all = append(all, r)
	}
	left := len(all)
	for k := 0; left > 0; k++ {
		i := k % len(all)
		if k < len(order) {
			i = order[k] % len(all)
		}
		r := &all[i]
		if r.done {
			continue
		}
		s.turn = r.turn
		if _, more := r.next(); !more {
			r.done = true
			left--
		}
	}
}
