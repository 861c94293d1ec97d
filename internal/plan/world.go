package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/world"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// evalMost is how many microbatches of a validation a replica has, in a proof of one: each is forward alone, and does
// what those before it did.
const evalMost = 256

// CheckWorld proves that a training step of the grid ends, and a validation of that many microbatches: every
// group of ranks meets its collectives in one order, with the credits that the edges have. What it goes by are the lists
// that each rank records, in a dry run. Without groups the table's own check is all there is.
func (p *Plan) CheckWorld(evalMicrobatches int) (*world.Report, error) {
	if !p.Grouped() {
		return &world.Report{}, nil
	}
	if n := p.grid.Size(grid.Data); evalMicrobatches > evalMost*n { // the remainder stays the same
		evalMicrobatches = evalMost*n + evalMicrobatches%n
	}
	replicas, err := p.replicas(evalMicrobatches)
	if err != nil {
		return nil, err
	}
	w, err := p.world(replicas, false, actors.Alike(replicas))
	var report *world.Report
	if err == nil {
		report, err = world.Check(w)
	}
	if errors.Is(err, world.ErrTooLarge) {
		return nil, p.cfg.Errorf("batch.microbatch", "%w", err)
	}
	if err != nil {
		return nil, p.cfg.Errorf("pipeline.schedule", "the ranks would not finish a step: %w", err)
	}
	if evalMicrobatches == 0 {
		return report, nil
	}
	if w, err = p.world(replicas, true, false); err == nil {
		_, err = world.Check(w)
	}
	if err != nil {
		return nil, p.cfg.Errorf("pipeline.schedule", "the ranks would not finish a validation: %w", err)
	}
	return report, nil
}

// world returns what all ranks do in a training step, or in a validation. alike: the replicas sum gradients during
// the step.
func (p *Plan) world(replicas []actors.Replica, eval, alike bool) (*world.World, error) {
	o := &world.Orders{Grid: p.grid, Slices: p.sequence(), Way: p.way(), Pending: collective.LimitPending,
		Overlap: p.cfg.Parallel.ExpertOverlap}
	for _, r := range replicas {
		t := r.Table
		if eval {
			t = r.EvalTable
		}
		o.Tables = append(o.Tables, t)
	}
	groups := p.recordGroups()
	o.Groups = groups.all
	// Ranks with the same place in their groups and the same table record the same operations, except for the groups. Of many
	// replicas, only the first and the last are recorded.
	type place struct {
		at    grid.Coordinates
		table *scheduler.Table
	}
	known := make(map[place]world.Lists)
	o.Lists = func(rank int, t *scheduler.Table) (world.Lists, error) {
		key := place{p.grid.Coordinates(rank), t}
		if last := p.grid.Size(grid.Data) - 1; key.at[grid.Data] != last {
			key.at[grid.Data] = 0
		}
		lists, there := known[key]
		if !there {
			of := 0
			if alike && !t.ForwardOnly {
				of = t.Microbatches
			}
			var err error
			if lists, err = p.recordLists(rank, t, of, groups, p.someMicrobatches(p.stageOf(rank), t)); err != nil {
				return lists, err
			}
			if err := p.checkFixed(lists, t.Ranks[p.stageOf(rank)]); err != nil {
				return lists, err
			}
			known[key] = lists
		}
		lists = groups.ofRank(lists, rank)
		others := p.tiedRanks(rank)
		for i, to := range lists.Tied.With {
			lists.Tied.With[i] = others[to]
		}
		return lists, nil
	}
	return o.World()
}

// checkFixed rejects collectives in rows that ranks may leave early: the members of a group would not meet.
func (p *Plan) checkFixed(lists world.Lists, row []scheduler.Action) error {
	for i, ops := range lists.Actions {
		switch {
		case len(ops) == 0:
		case p.cfg.Pipeline.PostValidation && row[i].Type == scheduler.F:
			return fmt.Errorf("%w: %v has %s, but pipeline.post_validation may stop it on some ranks only; set post_validation = false",
				world.ErrMismatch, row[i], ops[0].What)
		}
	}
	return nil
}

// recordGroups are Groups that transfer nothing. Recorded operations name the dimension of their group.
type recordGroups struct {
	NoGroups
	grid  *grid.Grid
	all   []world.Group
	index map[memberOf]int32
}

func (p *Plan) recordGroups() recordGroups {
	g := recordGroups{grid: p.grid, index: make(map[memberOf]int32)}
	for _, d := range GroupDimensions(p.grid) {
		for _, ranks := range p.grid.Groups(d) {
			if len(ranks) == 1 {
				continue
			}
			for _, rank := range ranks {
				g.index[memberOf{rank, d}] = int32(len(g.all))
			}
			g.all = append(g.all, world.Group{Name: p.grid.Name(ranks[0], d), Members: ranks})
		}
	}
	return g
}

// recordGroup is the group of a member.
type recordGroup struct {
	tensorops.DryGroup
	dim grid.Dimension
}

// Of returns a rank's group along a dimension; nil: the rank is alone.
func (g recordGroups) Of(rank int, d grid.Dimension) tensorops.Group {
	if _, there := g.index[memberOf{rank, d}]; !there {
		return nil
	}
	ranks := g.grid.Group(rank, d)
	for i, r := range ranks {
		if r == rank {
			return recordGroup{tensorops.DryGroup{Place: i, Members: len(ranks)}, d}
		}
	}
	return nil
}

// ofRank replaces the dimensions in lists with a rank's groups.
func (g recordGroups) ofRank(l world.Lists, rank int) world.Lists {
	put := func(ops []world.Op) []world.Op {
		if len(ops) == 0 {
			return nil
		}
		own := make([]world.Op, len(ops))
		for i, o := range ops {
			if own[i] = o; o.Group >= 0 {
				own[i].Group = g.index[memberOf{rank, grid.Dimension(o.Group)}]
			}
		}
		return own
	}
	out := world.Lists{Together: l.Together, Tied: world.Tied{With: slices.Clone(l.Tied.With), Ops: put(l.Tied.Ops)}, Norms: put(l.Norms),
		Update: put(l.Update)}
	for _, ops := range l.Actions {
		out.Actions = append(out.Actions, put(ops))
	}
	return out
}

// like returns the microbatch whose lists have the same collectives: the microbatch itself, if it must be recorded.
type like func(microbatch int32) int32

func everyMicrobatch(microbatch int32) int32 { return microbatch }

// someMicrobatches selects the microbatches of a row to record: the first and the last of each chunk, which may do more than
// others, and of the rest one of each kind.
func (p *Plan) someMicrobatches(stage int, t *scheduler.Table) like {
	type visit struct {
		chunk int32
		kind  scheduler.Type
	}
	first, last := make(map[visit]int32), make(map[visit]int32)
	for _, a := range t.Ranks[stage] {
		v := visit{a.Chunk, a.Type}
		if _, seen := first[v]; !seen {
			first[v] = a.Microbatch
		}
		last[v] = a.Microbatch
	}
	own := make(map[int32]bool)
	for v := range first {
		own[first[v]], own[last[v]] = true, true
	}
	type way struct{ recompute, headLater bool }
	recompute, headLater := p.Recomputes(), p.HeadLater()
	usual, as := make(map[way]int32), make([]int32, t.Microbatches)
	for i := range as {
		as[i] = int32(i)
		if own[as[i]] {
			continue
		}
		w := way{recompute(stage, i), headLater(t.Microbatches, i)}
		if _, there := usual[w]; !there {
			usual[w] = as[i]
		}
		as[i] = usual[w]
	}
	return func(microbatch int32) int32 { return as[microbatch] }
}

// recordLists records the lists of a rank's order, as a stage actor does, and keeps their collectives. of is
// stages.Microbatch.Of. The groups of its operations are dimensions, and its tied ranks are places in tiedRanks.
func (p *Plan) recordLists(rank int, t *scheduler.Table, of int, groups recordGroups, as like) (lists world.Lists, err error) {
	dry, stage := tensorops.NewDryStream(), p.stageOf(rank)
	st, err := stages.NewStage(p.model, dry, p.chunks[stage], p.optionsOf(rank, groups))
	if err != nil {
		return lists, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	r := recorder{names: make(map[collective.Signature]string), atOnce: p.KindOf(rank) == device.CUDA, whole: p.grid.WholeExperts()}
	record := func(what string, of func(l *tensorops.List)) (ops []world.Op) {
		l := dry.NewList()
		of(l)
		if err == nil {
			ops = r.collectives(l, what)
			if e := tensorops.Run(dry, l); e != nil {
				err = fmt.Errorf("%s: %w", what, e)
			}
		}
		return ops
	}
	lists.Together = p.pairsShareWeights()
	row := listsOf(t.Ranks[stage], lists.Together)
	own := firstOfKinds(row, as)
	if of > 0 { // the number of recorded ones
		of = len(own)
	}
	d := p.newDry(st, stage, t, of)
	d.tensor = p.grid.Coordinates(rank)[grid.Tensor]
	recorded := make(map[listKind][]world.Op)
	for _, list := range row {
		some := slices.DeleteFunc(slices.Clone(list), func(a scheduler.Action) bool { return !own[a.Microbatch] })
		if len(some) == 0 {
			continue
		}
		ops := record("gradients", func(l *tensorops.List) { d.together(l, nil, some) })
		if k := kindOf(list, as); recorded[k] == nil && len(some) == len(list) {
			recorded[k] = ops
		}
		if t.ForwardOnly {
			st.Finish(int(list[0].Chunk), int(list[0].Microbatch))
		}
	}
	for _, list := range row {
		lists.Actions = append(lists.Actions, recorded[kindOf(list, as)])
		lists.Actions = append(lists.Actions, make([][]world.Op, len(list)-1)...)
	}
	if t.ForwardOnly {
		return lists, err
	}
	if st.WantsTied() > 0 {
		lists.Tied.Ops = record("tied gradients", func(l *tensorops.List) {
			for _, g := range st.TiedGrads(l, p.tiedPlaces(stage)) {
				if !slices.Contains(lists.Tied.With, g.To) { // one for each weight; a rank may have several
					lists.Tied.With = append(lists.Tied.With, g.To)
				}
				l.Free(g.Grad)
			}
		})
	}
	lists.Norms = record("gradients", func(l *tensorops.List) {
		for _, g := range st.MissingTied(l) {
			if err := st.TakeTied(g); err != nil {
				l.Fail(err)
			}
		}
		st.GradNorms(l)
	})
	lists.Update = record("weights", func(l *tensorops.List) { st.Apply(l, stages.Update{Count: 1}) })
	return lists, err
}

// recorder collects the collectives of lists.
type recorder struct {
	names  map[collective.Signature]string
	atOnce bool // the device waits for each one at its start
	whole  bool // ranks with the same experts may have other slices of all else, and so their experts' gradients elsewhere
}

// collectives returns those of a list, with dimensions as groups. Sums over replicas are identified by their position, others
// by their action.
func (r *recorder) collectives(l *tensorops.List, what string) (all []world.Op) {
	ops := l.Ops()
	var numbers []int // by number in the list - 1: the number of those that go on, 0: it does not
	later := 0
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case tensorops.KindAwait:
			switch n := op.Await().Number; {
			case n == 0:
				all = append(all, world.Await)
			case numbers[n-1] > 0:
				all = append(all, world.AwaitOne(numbers[n-1]))
			}
		case tensorops.KindCollective:
			a := op.Collective()
			g, grouped := a.Group.(recordGroup)
			if a.Later {
				number := 0
				if grouped && !r.atOnce {
					later++
					number = later
				}
				numbers = append(numbers, number)
			}
			if !grouped {
				continue // alone
			}
			sig := collective.SignatureOf(a)
			name, there := r.names[sig]
			if !there {
				name = sig.String()
				r.names[sig] = name
			}
			sums := g.dim == grid.Copies || g.dim == grid.ExpertCopies && !r.whole
			o := world.Op{Group: int32(g.dim), What: name, OfStep: !sums, Later: a.Later && !r.atOnce,
				Exchange: g.dim == grid.Expert, Back: a.Back}
			if sums {
				whole := a.Src
				if a.What == tensorops.AllGather {
					whole = a.Dst
				}
				o.Of = fmt.Sprintf("%s from %d on", what, whole.Offset())
			}
			all = append(all, o)
		}
	}
	return all
}
