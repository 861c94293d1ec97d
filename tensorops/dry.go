package tensorops

import "fmt"

// DryGroup is a member of a group that transfers no data. It serves to record one rank's lists on a
// DryStream.
type DryGroup struct{ Place, Members int }

// Size returns the number of members.
func (g DryGroup) Size() int { return g.Members }

// Rank returns the rank of this member.
func (g DryGroup) Rank() int { return g.Place }

// Start fails with ErrUnsupported, since there are no other members.
func (DryGroup) Start(op *Op, done func(error)) {
	done(fmt.Errorf("%v in a dry run: %w", op, ErrUnsupported))
}

// DryStream records lists and runs none; its tensors have no memory. Recording a whole step on it
// shows how much memory the step takes, before any memory is allocated.
type DryStream struct {
	memory *Memory
	arena  Arena
	spare  *List // a submitted list, reused: the lists of a step need memory for one
}

// NewDryStream makes a DryStream.
func NewDryStream() *DryStream {
	m := NewMemory(&nothing{next: minClassBytes}, 0)
	return &DryStream{memory: m, arena: m.NewArena("dry run")}
}

// Memory returns the memory that the recorded lists would take.
func (d *DryStream) Memory() MemoryStats { return d.memory.Stats() }

// NewList returns an empty list.
func (d *DryStream) NewList() *List {
	if l := d.spare; l != nil {
		d.spare = nil
		return l
	}
	return NewList(d.arena, nil)
}

// Submit completes at once, with the error of recording if there was one, and empties the list.
func (d *DryStream) Submit(l *List, done func(error)) {
	err := l.Err()
	l.Complete()
	l.Reset()
	d.spare = l
	done(err)
}

// Arena returns an arena that counts bytes without allocating them.
func (d *DryStream) Arena() Arena { return d.arena }

// Close does nothing.
func (d *DryStream) Close() {}
