package tensorops

import (
	"fmt"
	"slices"
)

// Collective is a kind of operation that the members of a group run together.
type Collective uint8

// The collectives. Each is documented at the List method that records it.
const (
	AllReduce Collective = iota
	ReduceScatter
	AllGather
	Broadcast
	AllToAll
	RingForward
	AllToAllV
	Barrier
	numCollectives
)

var collectiveNames = [numCollectives]string{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "ring_forward",
	"all_to_all_v", "barrier"}

func (c Collective) String() string {
	if c >= numCollectives {
		return fmt.Sprintf("collective(%d)", uint8(c))
	}
	return collectiveNames[c]
}

// Reduction says how the members' elements are combined into one. The elements are combined in the
// order of the members' ranks, whatever transfers them.
type Reduction uint8

// The reductions. Mean is the sum divided by the number of members.
const (
	Sum Reduction = iota
	Mean
	Max
	Min
	Product
	numReductions
)

var reductionNames = [numReductions]string{"sum", "mean", "max", "min", "product"}

func (r Reduction) String() string {
	if r >= numReductions {
		return fmt.Sprintf("reduction(%d)", uint8(r))
	}
	return reductionNames[r]
}

// AllReduce records t = the reduction of the members' t, in place.
func (l *List) AllReduce(t Tensor, how Reduction, g Group) {
	l.collective(CollectiveArgs{What: AllReduce, Dst: t, Src: t, How: how, Group: g})
}

// ReduceScatter records dst = this member's part, along dimension dim, of the reduction of the
// members' src. That dimension of src is the dimension of dst times the number of members.
func (l *List) ReduceScatter(dst, src Tensor, dim int, how Reduction, g Group) {
	l.collective(CollectiveArgs{What: ReduceScatter, Dst: dst, Src: src, Dim: dim, How: how, Group: g})
}

// AllGather records dst = the members' src, one after another along dimension dim, in the order of
// their ranks. That dimension of dst is the dimension of src times the number of members.
func (l *List) AllGather(dst, src Tensor, dim int, g Group) {
	l.collective(CollectiveArgs{What: AllGather, Dst: dst, Src: src, Dim: dim, Group: g})
}

// Broadcast records t = the t of the member with rank root, in place.
func (l *List) Broadcast(t Tensor, root int, g Group) {
	l.collective(CollectiveArgs{What: Broadcast, Dst: t, Src: t, Root: root, Group: g})
}

// AllToAll exchanges parts: part i of src, along its first dimension, goes to member i, into the
// part of dst for this member.
func (l *List) AllToAll(dst, src Tensor, g Group) {
	l.collective(CollectiveArgs{What: AllToAll, Dst: dst, Src: src, Group: g})
}

// RingForward records dst = the src of the previous member; the last member comes before the first.
func (l *List) RingForward(dst, src Tensor, g Group) {
	l.collective(CollectiveArgs{What: RingForward, Dst: dst, Src: src, Group: g})
}

// Barrier records a wait until all members have reached it.
func (l *List) Barrier(g Group) { l.collective(CollectiveArgs{What: Barrier, Group: g}) }

// Begin records a collective that may run while the following operations are computed, up to the
// next Await, its own AwaitOne or the end of the list. Until then its tensors belong to it. A device
// may also run it at once. It returns the collective's number among those of the list, from 1.
func (l *List) Begin(a CollectiveArgs) (number int) {
	a.Later = true
	l.begun++
	l.open = append(l.open, l.begun)
	l.collective(a)
	return l.begun
}

// Begun returns the number of collectives that were started and not awaited yet.
func (l *List) Begun() int { return len(l.open) }

// Await records a wait for all collectives that Begin has started in this list.
func (l *List) Await() {
	l.open = l.open[:0]
	l.op(KindAwait)
}

// AwaitOne records a wait for one collective, of which Begin has returned the number. It records
// nothing if an earlier Await waits for it. A list that has not begun it fails with ErrShape.
func (l *List) AwaitOne(number int) {
	if number < 1 || number > l.begun {
		l.Fail(fmt.Errorf("%w: a wait for collective %d of a list that has begun %d", ErrShape, number, l.begun))
		return
	}
	at := slices.Index(l.open, number)
	if at < 0 {
		return
	}
	l.open = slices.Delete(l.open, at, at+1)
	AwaitArgs{number}.Put(l.op(KindAwait))
}

// AwaitArgs are the operands of KindAwait.
type AwaitArgs struct{ Number int } // of the collective among those that the list has begun, from 1; 0: all

// Put stores the operands.
func (a AwaitArgs) Put(o *Op) { o.I[0] = a.Number }

// Await reads the operands.
func (o *Op) Await() AwaitArgs { return AwaitArgs{o.I[0]} }

func (l *List) collective(a CollectiveArgs) {
	o := l.op(KindCollective)
	a.Put(o)
	if err := a.Check(); err != nil {
		l.need(o, false, err.Error())
	}
}

// CollectiveArgs are the operands of KindCollective. A barrier has no tensors; Dst and Src are the
// same tensor for a collective in place.
type CollectiveArgs struct {
	What     Collective
	Dst, Src Tensor
	Dim      int // for ReduceScatter and AllGather
	Root     int // for Broadcast
	How      Reduction
	Group    Group
	Later    bool // recorded by Begin
	// For AllToAllV.
	Table Tensor
	Back  bool
}

// Put stores the operands.
func (a CollectiveArgs) Put(o *Op) {
	o.operands(a.Dst, a.Src, a.Table)
	o.I = [8]int{int(a.What), a.Dim, a.Root, int(a.How), truth(a.Back)}
	o.Group = a.Group
	o.set(FlagLater, a.Later)
}

// Collective reads the operands.
func (o *Op) Collective() CollectiveArgs {
	return CollectiveArgs{What: Collective(o.I[0]), Dst: o.T[0], Src: o.T[1], Dim: o.I[1], Root: o.I[2], How: Reduction(o.I[3]),
		Group: o.Group, Later: o.Has(FlagLater), Table: o.T[2], Back: o.I[4] != 0}
}

// Check compares the operands with each other and with the group.
func (a CollectiveArgs) Check() error {
	if a.Group == nil {
		return fmt.Errorf("%v has no group", a.What)
	}
	if a.What == Barrier {
		return nil
	}
	if !a.Dst.Valid() || !a.Src.Valid() || !a.Dst.Contiguous() || !a.Src.Contiguous() || a.Dst.dtype != a.Src.dtype {
		return fmt.Errorf("%v needs contiguous tensors of one type", a.What)
	}
	if a.What == AllToAllV {
		return a.checkTable()
	}
	members, reduces := a.Group.Size(), a.What == AllReduce || a.What == ReduceScatter
	if reduces && a.Dst.dtype == Int32 && a.How == Mean {
		return fmt.Errorf("%v: int32 has no mean", a.What)
	}
	if reduces && a.How >= numReductions {
		return fmt.Errorf("%v by %v", a.What, a.How)
	}
	whole, part, dim := a.Src, a.Dst, a.Dim
	switch a.What {
	case AllGather:
		whole, part = a.Dst, a.Src
	case ReduceScatter:
	case Broadcast:
		if a.Root < 0 || a.Root >= members {
			return fmt.Errorf("%v from member %d, but there are %d members", a.What, a.Root, members)
		}
		fallthrough
	default:
		members, dim = 1, 0
	}
	if dim < 0 || dim >= max(whole.Rank(), 1) || whole.Rank() != part.Rank() {
		return fmt.Errorf("%v cannot run along dimension %d of %v and %v", a.What, dim, a.Dst, a.Src)
	}
	for i := range whole.Rank() {
		want := part.Dim(i)
		if i == dim {
			want *= members
		}
		if whole.Dim(i) != want {
			return fmt.Errorf("%v of %d members along dimension %d: the shapes %v and %v do not match", a.What, a.Group.Size(), dim, a.Dst, a.Src)
		}
	}
	if a.What == AllToAll && (whole.Rank() == 0 || whole.Dim(0)%a.Group.Size() != 0) {
		return fmt.Errorf("%v of %d members: the first dimension of %v is not a multiple of the members", a.What, a.Group.Size(), a.Src)
	}
	return nil
}
