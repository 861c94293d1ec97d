package tensorops

import "fmt"

// Group is a set of peers that run a collective operation together. Stages and
// actors see only this interface; who carries the data is the business of
// whoever makes the group.
type Group interface {
	// Size is the number of members, Rank the place of this one.
	Size() int
	Rank() int
	// Start begins the collective on op's tensors and returns at once; done is
	// called when the result is in place. A device that meets a collective in
	// a list gives its cores back until then.
	Start(op *Op, done func(error))
}

// Solo is the group of one: every collective returns its input.
type Solo struct{}

// Size is 1.
func (Solo) Size() int { return 1 }

// Rank is 0.
func (Solo) Rank() int { return 0 }

// Start completes at once. What is in place stays, all else is copied, which the host must be
// able to do.
func (Solo) Start(op *Op, done func(error)) {
	if op.Kind != KindCollective {
		done(fmt.Errorf("%v: %w", op.Kind, ErrUnsupported))
		return
	}
	if a := op.Collective(); a.What != Barrier && !a.Dst.Same(a.Src) {
		copy(Bytes(a.Dst), Bytes(a.Src))
	}
	done(nil)
}

// Same reports whether two tensors begin at the same element of the same memory.
func (t Tensor) Same(u Tensor) bool { return t.buf == u.buf && t.off == u.off }
