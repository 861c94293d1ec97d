package world

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

// Orders describes one training step, or one validation, of all ranks of a grid.
type Orders struct {
	Grid *grid.Grid
	// Tables has each replica's table; nil: the replica has no work. A table has one row for each stage of the grid and has passed
	// [scheduler.Check]. The tables of a validation are forward only.
	Tables []*scheduler.Table
	// Lists returns a rank's collectives; nil: there are none.
	Lists func(rank int, t *scheduler.Table) (Lists, error)
	// Groups are the groups that Lists refers to.
	Groups []Group
	// Slices and Way define how a tensor crosses between tensor groups: see grid.NewEdge.
	Slices  bool
	Way     grid.Way
	Pending int // see World.Pending
	// Overlap says that the actions of an overlapped pair are recorded in turns.
	Overlap bool
}

// Lists has a rank's collectives.
type Lists struct {
	Actions [][]Op // by place in the rank's row
	// Together says that the operations of an overlapped pair were recorded as one list, in turns. Its first action has all of them.
	Together bool
	Tied     Tied
	Norms    []Op // once all parts have arrived
	Update   []Op // after the decision on the step
}

// Tied describes the exchange of tied weights' gradients after a rank's row: it sends parts to other ranks and receives parts from
// the same ranks.
type Tied struct {
	With []int // the other ranks; empty: the rank has no tied weight
	Ops  []Op
}

// Steps after a row.
const (
	stepTied   = "tied gradients"
	stepNorms  = "norms"
	stepReport = "report"
	stepUpdate = "update"
)

// World builds the world: the pipelines of each replica and each member of a context group. [scheduler.Table.Edges] defines the
// edges between stages, [grid.Edge] the messages between tensor groups, and [scheduler.Check] the credits between two ranks. In
// a training step, all ranks report before any rank updates.
func (o *Orders) World() (*World, error) {
	g := o.Grid
	if n := g.Size(grid.Data); n != len(o.Tables) {
		return nil, fmt.Errorf("%w: %d tables for the %d replicas of %v", ErrWorld, len(o.Tables), n, g)
	}
	w := &World{Name: "grid " + g.String(), Ranks: make([]Rank, g.World()), Groups: o.Groups, Pending: o.Pending}
	if n := o.steps(); n > MaxSteps {
		return nil, fmt.Errorf("%w: the ranks of %v have %d actions, but the limit is %d; use fewer microbatches", ErrTooLarge, g,
			n, MaxSteps)
	}
	b := builder{Orders: o, world: w, edges: make(map[edgeKey]int32), crossings: make(map[[2]int]*grid.Edge)}
	for replica, t := range o.Tables {
		if t == nil {
			continue
		}
		if n := g.Size(grid.Pipeline); n != t.NumRanks() {
			return nil, fmt.Errorf("%w: replica %d has a table of %d ranks, in %v", ErrWorld, replica, t.NumRanks(), g)
		}
		report, err := scheduler.Check(t)
		if err != nil {
			return nil, fmt.Errorf("replica %d: %w", replica, err)
		}
		b.trains = b.trains || !t.ForwardOnly
		for rank := range g.World() {
			if g.Coordinates(rank)[grid.Data] != replica {
				continue
			}
			if err := b.rank(rank, t, report); err != nil {
				return nil, fmt.Errorf("%s: %w", w.name(rank), err)
			}
		}
	}
	if b.trains {
		b.reportAll()
	}
	return w, nil
}

// MaxSteps bounds the total number of steps of all ranks. A step takes a few hundred bytes.
const MaxSteps = 1 << 22

// steps estimates the total number of steps.
func (o *Orders) steps() (n int) {
	for _, t := range o.Tables {
		if t == nil {
			continue
		}
		for stage, row := range t.Ranks {
			if stage < o.Grid.Size(grid.Pipeline) {
				n += len(row) * o.Grid.TensorSize(stage) * o.Grid.Size(grid.Context)
			}
		}
	}
	return n
}

type builder struct {
	*Orders
	world  *World
	edges  map[edgeKey]int32
	trains bool

	crossings map[[2]int]*grid.Edge
}

// edgeKey identifies an edge between two ranks of a pipeline: one of the table's edges, or the exchange of tied gradients.
type edgeKey struct {
	from, to int
	edge     scheduler.Edge
	tied     bool
}

func (b *builder) edge(k edgeKey, credits int) int32 {
	i, there := b.edges[k]
	if !there {
		i = int32(len(b.world.Edges))
		b.edges[k] = i
		name := fmt.Sprintf("%v %d→%d", k.edge.Kind, k.edge.From, k.edge.To)
		if k.tied {
			name = stepTied
		}
		b.world.Edges = append(b.world.Edges, Edge{Name: name, From: k.from, To: k.to, Credits: credits})
	}
	return i
}

// group lists the ranks that share a stage's layers in a rank's pipeline.
func (b *builder) group(rank, stage int) (all []int) {
	at := b.Grid.Coordinates(rank)
	at[grid.Pipeline] = stage
	for at[grid.Tensor] = range b.Grid.TensorSize(stage) {
		all = append(all, b.Grid.Rank(at))
	}
	return all
}

// peers lists the ranks of a stage that get a message with a rank's output, or send one with its input.
func (b *builder) peers(rank, stage int, takes bool) (all []int) {
	at := b.Grid.Coordinates(rank)
	own, group := b.Grid.TensorSize(at[grid.Pipeline]), b.group(rank, stage)
	if takes {
		for _, p := range b.crossing(len(group), own).Takes(at[grid.Tensor]) {
			all = append(all, group[p.Sender])
		}
	} else {
		for _, p := range b.crossing(own, len(group)).Sends(at[grid.Tensor]) {
			all = append(all, group[p.Receiver])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// crossing returns the edge between two tensor groups.
func (b *builder) crossing(from, to int) *grid.Edge {
	k := [2]int{from, to}
	e := b.crossings[k]
	if e == nil {
		made := grid.NewEdge(from, to, b.Slices, b.Way)
		e = &made
		b.crossings[k] = e
	}
	return e
}

// rankName names a rank by its coordinates.
func rankName(g *grid.Grid, rank int) string {
	at := g.Coordinates(rank)
	names := []string{fmt.Sprintf("stage %d", at[grid.Pipeline])}
	for _, d := range []grid.Dimension{grid.Data, grid.Context, grid.Tensor} {
		if g.Size(d) > 1 {
			names = append(names, fmt.Sprintf("%v %d", d, at[d]))
		}
	}
	return strings.Join(names, ", ")
}

func (b *builder) rank(rank int, t *scheduler.Table, report *scheduler.Report) error {
	r := &b.world.Ranks[rank]
	r.Name = rankName(b.Grid, rank)
	stage := b.Grid.Coordinates(rank)[grid.Pipeline]
	row := t.Ranks[stage]
	var lists Lists
	if b.Lists != nil {
		var err error
		if lists, err = b.Lists(rank, t); err != nil {
			return err
		}
	}
	for i := 0; i < len(row); i += scheduler.Width(row, i) {
		var step Step
		var ops [][]Op
		for k := i; k < i+scheduler.Width(row, i); k++ {
			a := row[k]
			if k > i {
				step.Name += ";"
			}
			step.Name += a.String()
			b.messages(&step, rank, t, report, a)
			if k < len(lists.Actions) {
				ops = append(ops, ofAction(lists.Actions[k], a, scheduler.Width(row, i) > 1 && !lists.Together))
			}
		}
		switch {
		case len(ops) == 0:
		case row[i].Part > 0:
			step.Ops = ofParts(row[i:i+len(ops)], ops)
		default:
			var err error
			turns := func(exchanges ...[]scheduler.Type) ([]int, error) { return t.TurnsOf(stage, i, exchanges...) }
			if step.Ops, err = inOneList(row[i:i+len(ops)], ops, b.Overlap && !lists.Together, turns); err != nil {
				return err
			}
		}
		r.Steps = append(r.Steps, step)
	}
	if t.ForwardOnly {
		return nil
	}
	norms := Step{Name: stepNorms, Ops: lists.Norms}
	if len(lists.Tied.With) > 0 {
		tied := Step{Name: stepTied, Ops: lists.Tied.Ops}
		for _, peer := range lists.Tied.With {
			tied.Sends = append(tied.Sends, Message{b.edge(edgeKey{from: rank, to: peer, tied: true}, -1), 0})
			norms.Takes = append(norms.Takes, Message{b.edge(edgeKey{from: peer, to: rank, tied: true}, -1), 0})
		}
		r.Steps = append(r.Steps, tied)
	}
	r.Steps = append(r.Steps, norms)
	r.Steps = append(r.Steps, Step{Name: stepReport}, Step{Name: stepUpdate, Ops: lists.Update})
	return nil
}

// messages adds the messages that an action takes and sends.
func (b *builder) messages(step *Step, rank int, t *scheduler.Table, report *scheduler.Report, a scheduler.Action) {
	kind := scheduler.ForwardEdge
	if a.Part > 1 { // the first part stands for all
		return
	}
	switch a.Type {
	case scheduler.F:
	case scheduler.I, scheduler.B:
		kind = scheduler.BackwardEdge
	default:
		return
	}
	for _, e := range report.Edges.Ins(kind, a.Chunk) {
		for _, peer := range b.peers(rank, t.RankOf(int(e.From)), true) {
			step.Takes = append(step.Takes, Message{b.edge(edgeKey{from: peer, to: rank, edge: e}, report.Credits.OfEdge(e)), a.Microbatch})
		}
	}
	for _, e := range report.Edges.Outs(kind, a.Chunk) {
		for _, peer := range b.peers(rank, t.RankOf(int(e.To)), false) {
			step.Sends = append(step.Sends, Message{b.edge(edgeKey{from: rank, to: peer, edge: e}, report.Credits.OfEdge(e)), a.Microbatch})
		}
	}
}

// reportAll makes each rank's update wait until all ranks have reported.
func (b *builder) reportAll() {
	all := Group{Name: "all ranks"}
	group := int32(len(b.world.Groups))
	for rank := range b.world.Ranks {
		steps := b.world.Ranks[rank].Steps
		if len(steps) == 0 {
			continue
		}
		all.Members = append(all.Members, rank)
		steps[len(steps)-2].Ops = []Op{{Group: group, What: "barrier"}}
	}
	b.world.Groups = append(append([]Group(nil), b.world.Groups...), all)
}
