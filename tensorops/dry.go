package tensorops

import "fmt"

// DryGroup is a member of a group that nobody carries data for, to record the lists of one rank
// of it on a DryStream.
type DryGroup struct{ Place, Members int }

// Size is the number of members.
func (g DryGroup) Size() int { return g.Members }

// Rank is the place of this one.
func (g DryGroup) Rank() int { return g.Place }

// Start fails: there is nobody to do it with.
func (DryGroup) Start(op *Op, done func(error)) {
	done(fmt.Errorf("%v in a dry run: %w", op, ErrUnsupported))
}

// DryStream records lists and runs none: its tensors have no memory. Recording a
// whole step on it tells how much memory the step takes, before any is
// allocated.
type DryStream struct {
	memory *Memory
	arena  Arena
	spare  *List // that has been submitted: a step's lists need memory for one
}

// NewDryStream makes one.
func NewDryStream() *DryStream {
	m := NewMemory(&nothing{next: minClassBytes}, 0)
	return &DryStream{memory: m, arena: m.NewArena("dry run")}
}

// Memory tells what the recorded lists would hold.
func (d *DryStream) Memory() MemoryStats { return d.memory.Stats() }

// NewList returns an empty list.
func (d *DryStream) NewList() *List {
	if l := d.spare; l != nil {
		d.spare = nil
		return l
	}
	return NewList(d.arena, nil)
}

// Submit completes at once, with the error of recording if there was one. The list is empty then.
func (d *DryStream) Submit(l *List, done func(error)) {
	err := l.Err()
	l.Complete()
	l.Reset()
	d.spare = l
	done(err)
}

// Arena counts without memory.
func (d *DryStream) Arena() Arena { return d.arena }

// Close does nothing.
func (d *DryStream) Close() {}
