package collective

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// The errors of collectives.
var (
	// ErrMismatch: the members started different collectives.
	ErrMismatch = errors.New("the members of a group started different collectives")
	// ErrLeft: another member has left the group.
	ErrLeft = errors.New("a member has left the group")
	// ErrClosed: this member has left the group.
	ErrClosed = errors.New("this member has left the group")
	// ErrFull: LimitPending collectives are incomplete.
	ErrFull = errors.New("too many collectives are pending")
	// ErrOverlap: a tensor that is written overlaps one that is read.
	ErrOverlap = errors.New("source and destination overlap")
)

// Group is one member's end of a group. It is safe for concurrent use, but all members must start
// the same collectives in the same order.
type Group struct {
	name       string
	rank, size int
	way        way
}

// way is how the members of a group exchange data.
type way interface {
	// begin takes the next collective of the member, and never blocks for long.
	begin(c call)
	// leave ends the membership. When it returns, nothing uses the member's tensors. silent: the
	// members in other processes aren't told, and nothing is waited for that they are owed.
	leave(cause error, silent bool)
	status() (Status, bool)
}

// call is a collective that a member has started.
type call struct {
	tensorops.CollectiveArgs
	sig   Signature
	since time.Time
	done  func(error)
}

// Name returns the group's name in errors.
func (g *Group) Name() string { return g.name }

// Size returns the number of members.
func (g *Group) Size() int { return g.size }

// Rank returns the rank of this member.
func (g *Group) Rank() int { return g.rank }

// Start starts a collective of a list. done must not block, nor leave the group; it may start
// collectives.
func (g *Group) Start(op *tensorops.Op, done func(error)) {
	if op.Kind != tensorops.KindCollective {
		done(fmt.Errorf("%s: %v: %w", g.name, op.Kind, tensorops.ErrUnsupported))
		return
	}
	g.begin(op.Collective(), done)
}

func (g *Group) begin(a tensorops.CollectiveArgs, done func(error)) {
	a.Group = g
	c := call{CollectiveArgs: a, done: done}
	if err := a.Check(); err != nil {
		done(fmt.Errorf("%s: %w: %w", g.title(), tensorops.ErrShape, err))
		return
	}
	c.sig = SignatureOf(a)
	if a.What == tensorops.AllToAllV {
		c.sig = c.sig.ofTable(tensorops.Bytes(a.Table))
		if _, _, err := a.ExchangedRows(tensorops.Elements[int32](a.Table)); err != nil {
			done(fmt.Errorf("%s, %v: %w", g.title(), c.sig, err))
			return
		}
	}
	if err := g.checkOverlap(a); err != nil {
		done(fmt.Errorf("%s, %v: %w", g.title(), c.sig, err))
		return
	}
	c.since = time.Now()
	g.way.begin(c)
}

// title names the group in errors.
func (g *Group) title() string { return "group " + g.name }

// checkOverlap refuses tensors of which a part would be written before it is read. Collectives in
// place, and a member's part at its place in the whole, are allowed.
func (g *Group) checkOverlap(a tensorops.CollectiveArgs) error {
	if a.What == tensorops.Barrier || !a.Src.Valid() || a.Src.Buffer() != a.Dst.Buffer() {
		return nil
	}
	src, dst := a.Src.Offset(), a.Dst.Offset()
	if src >= dst+a.Dst.Len() || dst >= src+a.Src.Len() {
		return nil
	}
	switch a.What {
	case tensorops.AllReduce, tensorops.Broadcast:
		if src == dst {
			return nil
		}
	case tensorops.AllGather:
		if outer(a.Dst, a.Dim) == 1 && src == dst+g.rank*a.Src.Len() {
			return nil
		}
	case tensorops.ReduceScatter:
		if outer(a.Src, a.Dim) == 1 && dst == src+g.rank*a.Dst.Len() {
			return nil
		}
	default:
		if g.size == 1 && src == dst {
			return nil
		}
	}
	return fmt.Errorf("%w: elements %d to %d are read, but %d to %d are written: use another tensor", ErrOverlap, src, src+a.Src.Len(), dst,
		dst+a.Dst.Len())
}

// outer is the product of the dimensions before one.
func outer(t tensorops.Tensor, dim int) int {
	n := 1
	for i := range dim {
		n *= t.Dim(i)
	}
	return n
}

// Leave ends the membership. This member's incomplete collectives end with ErrClosed, those of the
// others with ErrLeft and the cause, if there is one. When it returns, nothing uses the member's
// tensors any more.
func (g *Group) Leave(cause error) { g.way.leave(cause, false) }

// Abandon is Leave without a notice to members in other processes: the caller ends their waits in
// another way, with the reason.
func (g *Group) Abandon(cause error) { g.way.leave(cause, true) }

// Status says what a member waits for.
type Status struct {
	Group      string
	Collective uint64 // number of the collective in the group, from 1
	What       string
	Since      time.Time // when this member started it
	Missing    []int     // the ranks that it waits for; empty: it is in progress
}

func (s Status) String() string {
	if len(s.Missing) == 0 {
		return fmt.Sprintf("group %s, collective %d: %s is in progress", s.Group, s.Collective, s.What)
	}
	return fmt.Sprintf("group %s, collective %d: %s waits for %s", s.Group, s.Collective, s.What, ranks(s.Missing))
}

func ranks(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("rank %d", list[0])
	}
	return fmt.Sprintf("ranks %v", list)
}

// Status returns what this member's oldest incomplete collective waits for; false: there is none.
func (g *Group) Status() (Status, bool) { return g.way.status() }
