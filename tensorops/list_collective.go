package tensorops

import "fmt"

// Collective is what the members of a group do together.
type Collective uint8

// The collectives. Each is described at the List method that records it.
const (
	AllReduce Collective = iota
	ReduceScatter
	AllGather
	Broadcast
	AllToAll
	RingForward
	Barrier
	numCollectives
)

var collectiveNames = [numCollectives]string{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "ring_forward",
	"barrier"}

func (c Collective) String() string {
	if c >= numCollectives {
		return fmt.Sprintf("collective(%d)", uint8(c))
	}
	return collectiveNames[c]
}

// Reduction is how the members' elements become one. Each element is reduced in the order of the
// members' ranks, whatever carries them.
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
// members' src. That dimension of src is dst's times the number of members.
func (l *List) ReduceScatter(dst, src Tensor, dim int, how Reduction, g Group) {
	l.collective(CollectiveArgs{What: ReduceScatter, Dst: dst, Src: src, Dim: dim, How: how, Group: g})
}

// AllGather records dst = the members' src one after another along dimension dim, in the order
// of their ranks. That dimension of dst is src's times the number of members.
func (l *List) AllGather(dst, src Tensor, dim int, g Group) {
	l.collective(CollectiveArgs{What: AllGather, Dst: dst, Src: src, Dim: dim, Group: g})
}

// Broadcast records t = t of the member whose rank is root, in place.
func (l *List) Broadcast(t Tensor, root int, g Group) {
	l.collective(CollectiveArgs{What: Broadcast, Dst: t, Src: t, Root: root, Group: g})
}

// AllToAll records that part i of src, along its first dimension, becomes this member's part of
// dst of the member with rank i.
func (l *List) AllToAll(dst, src Tensor, g Group) {
	l.collective(CollectiveArgs{What: AllToAll, Dst: dst, Src: src, Group: g})
}

// RingForward records dst = src of the member before this one; the last one is before the first.
func (l *List) RingForward(dst, src Tensor, g Group) {
	l.collective(CollectiveArgs{What: RingForward, Dst: dst, Src: src, Group: g})
}

// Barrier records that nothing follows until all members have come here.
func (l *List) Barrier(g Group) { l.collective(CollectiveArgs{What: Barrier, Group: g}) }

// Begin records a collective that may go on while what follows is computed, up to the next Await
// or the end of the list. Until then its tensors belong to it. A device may as well carry it
// out at once.
func (l *List) Begin(a CollectiveArgs) {
	a.Later = true
	l.begun++
	l.collective(a)
}

// Begun is how many collectives were begun since the last Await.
func (l *List) Begun() int { return l.begun }

// Await records that all that Begin has begun in this list has ended.
func (l *List) Await() {
	l.begun = 0
	l.op(KindAwait)
}

func (l *List) collective(a CollectiveArgs) {
	o := l.op(KindCollective)
	a.Put(o)
	if err := a.Check(); err != nil {
		l.need(o, false, err.Error())
	}
}

// CollectiveArgs are the operands of KindCollective. A barrier has no tensors; Dst and Src are the
// same where it happens in place.
type CollectiveArgs struct {
	What     Collective
	Dst, Src Tensor
	Dim      int // of ReduceScatter and AllGather
	Root     int // of Broadcast
	How      Reduction
	Group    Group
	Later    bool // recorded by Begin
}

// Put stores the operands.
func (a CollectiveArgs) Put(o *Op) {
	o.operands(a.Dst, a.Src)
	o.I = [7]int{int(a.What), a.Dim, a.Root, int(a.How)}
	o.Group = a.Group
	o.set(FlagLater, a.Later)
}

// Collective reads the operands.
func (o *Op) Collective() CollectiveArgs {
	return CollectiveArgs{What: Collective(o.I[0]), Dst: o.T[0], Src: o.T[1], Dim: o.I[1], Root: o.I[2], How: Reduction(o.I[3]),
		Group: o.Group, Later: o.Has(FlagLater)}
}

// Check compares the operands with each other and with the group.
func (a CollectiveArgs) Check() error {
	if a.Group == nil {
		return fmt.Errorf("%v without a group", a.What)
	}
	if a.What == Barrier {
		return nil
	}
	if !a.Dst.Valid() || !a.Src.Valid() || !a.Dst.Contiguous() || !a.Src.Contiguous() || a.Dst.dtype != a.Src.dtype {
		return fmt.Errorf("%v takes contiguous tensors of one type", a.What)
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
			return fmt.Errorf("%v from member %d of %d", a.What, a.Root, members)
		}
		fallthrough
	default:
		members, dim = 1, 0
	}
	if dim < 0 || dim >= max(whole.Rank(), 1) || whole.Rank() != part.Rank() {
		return fmt.Errorf("%v along dimension %d of %v and %v", a.What, dim, a.Dst, a.Src)
	}
	for i := range whole.Rank() {
		want := part.Dim(i)
		if i == dim {
			want *= members
		}
		if whole.Dim(i) != want {
			return fmt.Errorf("%v among %d along dimension %d takes %v and %v", a.What, a.Group.Size(), dim, a.Dst, a.Src)
		}
	}
	if a.What == AllToAll && (whole.Rank() == 0 || whole.Dim(0)%a.Group.Size() != 0) {
		return fmt.Errorf("%v among %d: the first dimension of %v does not divide", a.What, a.Group.Size(), a.Src)
	}
	return nil
}
