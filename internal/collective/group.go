package collective

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// Errors that collectives end with.
var (
	// ErrMismatch: the members bring different collectives.
	ErrMismatch = errors.New("the members of a group bring different collectives")
	// ErrLeft: a member has left the group.
	ErrLeft = errors.New("a member has left the group")
	// ErrClosed: this member has left the group itself.
	ErrClosed = errors.New("this member has left the group")
	// ErrFull: LimitPending collectives are not complete.
	ErrFull = errors.New("too many collectives are pending")
	// ErrOverlap: a tensor that is written overlaps one that is read.
	ErrOverlap = errors.New("source and destination overlap")
)

// Group is one member's end of a group. Safe for concurrent use; but what the members start has to be
// the same, in the same order.
type Group struct {
	name       string
	rank, size int
	way        way
}

// way is how the members of a group meet.
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

// Name is what errors call the group.
func (g *Group) Name() string { return g.name }

// Size is the number of members.
func (g *Group) Size() int { return g.size }

// Rank is the place of this one.
func (g *Group) Rank() int { return g.rank }

// Start begins a collective of a list. done must not block, nor leave the group; it may start
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
	if err := g.checkOverlap(a); err != nil {
		done(fmt.Errorf("%s, %v: %w", g.title(), c.sig, err))
		return
	}
	c.since = time.Now()
	g.way.begin(c)
}

// title names the group in errors.
func (g *Group) title() string { return "group " + g.name }

// checkOverlap refuses tensors of which a part would be written before it is read. In place is what
// is so by its nature, or where a member's part lies where it belongs in the whole.
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
	return fmt.Errorf("%w: elements %d to %d are read, %d to %d written; take another tensor", ErrOverlap, src, src+a.Src.Len(), dst,
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

// Leave ends the membership: what the member has started and is not complete ends with ErrClosed, and
// the collectives of the others with ErrLeft and the cause, if there is one. When it returns, nothing
// uses the member's tensors any more.
func (g *Group) Leave(cause error) { g.way.leave(cause, false) }

// Abandon is Leave without a word to members in other processes: somebody else ends what they wait for,
// and it is for that one to say why.
func (g *Group) Abandon(cause error) { g.way.leave(cause, true) }

// Status is what a member waits for.
type Status struct {
	Group      string
	Collective uint64 // its number in the group, from 1
	What       string
	Since      time.Time // when this member started it
	Missing    []int     // the ranks that it waits for; none: it is under way
}

func (s Status) String() string {
	if len(s.Missing) == 0 {
		return fmt.Sprintf("group %s, collective %d: %s is under way", s.Group, s.Collective, s.What)
	}
	return fmt.Sprintf("group %s, collective %d: %s waits for %s", s.Group, s.Collective, s.What, ranks(s.Missing))
}

func ranks(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("rank %d", list[0])
	}
	return fmt.Sprintf("ranks %v", list)
}

// Status says what this member's oldest collective that is not complete waits for; false: there is none.
func (g *Group) Status() (Status, bool) { return g.way.status() }
