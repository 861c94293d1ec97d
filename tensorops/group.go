package tensorops

import "fmt"

// Group is a set of members that run a collective operation together. Stages and actors only see
// this interface. The code that makes the group decides how the data travel.
type Group interface {
	// Size returns the number of members, Rank the rank of this one, from 0.
	Size() int
	Rank() int
	// Start starts the collective on op's tensors and returns at once. It calls done when the
	// result is in place. Meanwhile a device that runs a collective of a list gives its cores to
	// other work.
	Start(op *Op, done func(error))
}

// Solo is the group with one member: every collective returns its input.
type Solo struct{}

// Size returns 1.
func (Solo) Size() int { return 1 }

// Rank returns 0.
func (Solo) Rank() int { return 0 }

// Start completes at once. A collective in place does nothing; otherwise it copies, which requires
// memory that the host can address.
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

// Same reports whether two tensors start at the same element of the same memory.
func (t Tensor) Same(u Tensor) bool { return t.buf == u.buf && t.off == u.off }
