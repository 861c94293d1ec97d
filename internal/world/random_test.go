package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// random makes worlds: healthy ones, and from them others with a mistake or two.
type random struct{ *rand.Rand }

func (r random) one(n int) bool { return r.IntN(n) == 0 }

// what is a collective that shapes has.
func (r random) what() string {
	c := tensorops.Collective(r.IntN(int(tensorops.Barrier) + 1))
	if c == tensorops.Barrier {
		return c.String()
	}
	return fmt.Sprintf("%v of %d", c, 1+r.IntN(2))
}

// table generates one, of any schedule that takes these sizes.
func (r random) table(stages, chunks, microbatches int) *scheduler.Table {
	names := scheduler.Schedules()
	for range 30 {
		s := scheduler.Spec{Schedule: names[r.IntN(len(names))], Ranks: stages, Chunks: chunks, Microbatches: microbatches}
		if s.Schedule == scheduler.Auto {
			continue
		}
		if t, err := scheduler.Generate(s); err == nil {
			return t
		}
	}
	t, err := scheduler.Generate(scheduler.Spec{Ranks: stages, Chunks: 1, Microbatches: microbatches})
	if err != nil {
		panic(err)
	}
	return t
}

// recipe is what each kind of action does together with others, the same for all ranks.
type recipe struct {
	acts  [scheduler.B + 1][]part
	norms []part
}

type part struct {
	dim   grid.Dimension
	what  string
	later bool
	await bool
	one   bool // it awaits the last that was begun for later, and not all
}

func (r random) recipe(g *grid.Grid) (c recipe) {
	parts := func(most int) (all []part) {
		for range r.IntN(most + 1) {
			dim := []grid.Dimension{grid.Tensor, grid.Tensor, grid.Context}[r.IntN(3)]
			if g.Size(dim) == 1 {
				continue
			}
			all = append(all, part{dim: dim, what: r.what(), later: r.one(3), await: r.one(2), one: r.one(2)})
		}
		return all
	}
	for t := scheduler.F; t <= scheduler.B; t++ {
		c.acts[t] = parts(3)
	}
	c.norms = parts(2)
	return c
}

// orders are a step of a random grid.
func (r random) orders() *Orders {
	var g *grid.Grid
	for g == nil || g.World() > 12 {
		order := []string{"tp", "cp", "pp", "dp"}
		r.Shuffle(4, func(i, k int) { order[i], order[k] = order[k], order[i] })
		s := grid.Sizes{Tensor: []int{1 + r.IntN(3)}, Context: 1 + r.IntN(2), Pipeline: 1 + r.IntN(3), Data: 1 + r.IntN(3),
			Order: strings.Join(order, "-")}
		if r.one(4) { // a size for each stage
			s.Order, s.Tensor = "", nil
			for range s.Pipeline {
				s.Tensor = append(s.Tensor, 1+r.IntN(3))
			}
		}
		var err error
		if g, err = grid.New(s); err != nil {
			panic(err)
		}
	}
	stages, chunks, microbatches := g.Size(grid.Pipeline), 1+r.IntN(2), 1+r.IntN(4)
	t := r.table(stages, chunks, microbatches)
	o := &Orders{Grid: g, Slices: r.one(4), Way: grid.Way(r.IntN(4))}
	uneven := r.one(4)
	for replica := range g.Size(grid.Data) {
		own := t
		if uneven && replica == 0 && t.Schedule != "" {
			s := scheduler.Spec{Schedule: t.Schedule, Ranks: stages, Chunks: t.NumChunks / stages, Microbatches: t.Microbatches + 1}
			if more, err := scheduler.Generate(s); err == nil {
				own = more
			}
		}
		o.Tables = append(o.Tables, own)
	}
	var tied []int // stages
	for s := range stages {
		if r.one(2) {
			tied = append(tied, s)
		}
	}
	c, split := r.recipe(g), r.one(2)
	r.lists(o, c, tied, split)
	return o
}

// lists gives orders their groups, and what ranks do in them. Where all replicas have the same table gradients of
// a chunk are added with its last microbatch, beside what follows, else at the step's end.
func (r random) lists(o *Orders, c recipe, tied []int, split bool) {
	g := o.Grid
	at := make(map[[2]int]int32) // by dimension and rank
	for _, d := range []grid.Dimension{grid.Tensor, grid.Context, grid.Data} {
		for _, ranks := range g.Groups(d) {
			if len(ranks) == 1 {
				continue
			}
			for _, rank := range ranks {
				at[[2]int{int(d), rank}] = int32(len(o.Groups))
			}
			o.Groups = append(o.Groups, Group{g.Name(ranks[0], d), ranks})
		}
	}
	alike := !slices.ContainsFunc(o.Tables, func(t *scheduler.Table) bool { return t != o.Tables[0] })
	replicated := g.Size(grid.Data) > 1
	sum, gather := fmt.Sprintf("%v of 2", tensorops.AllReduce), fmt.Sprintf("%v of 1", tensorops.AllGather)
	if split {
		sum = fmt.Sprintf("%v of 1", tensorops.ReduceScatter)
	}
	o.Lists = func(rank int, t *scheduler.Table) (l Lists, err error) {
		record := func(parts []part, kind string) (ops []Op) {
			begins := 0
			for i, p := range parts {
				if _, grouped := at[[2]int{int(p.dim), rank}]; !grouped { // a stage of one rank
					continue
				}
				op := Op{Group: at[[2]int{int(p.dim), rank}], What: p.what, Of: fmt.Sprintf("%s %d", kind, i), OfStep: true, Later: p.later}
				if p.what == tensorops.Barrier.String() {
					op.Of, op.OfStep = "", false
				}
				if ops = append(ops, op); op.Later {
					begins++
				}
				switch {
				case p.await && p.one && begins > 0:
					ops = append(ops, AwaitOne(begins))
				case p.await:
					ops = append(ops, Await)
				}
			}
			return ops
		}
		row := t.Ranks[g.Coordinates(rank)[grid.Pipeline]]
		last := make(map[int32]int)
		for i, a := range row {
			if a.Type == scheduler.B || a.Type == scheduler.W {
				last[a.Chunk] = i
			}
		}
		data := at[[2]int{int(grid.Data), rank}]
		for i, a := range row {
			ops := record(c.acts[a.Type], "part")
			if n, there := last[a.Chunk]; replicated && alike && there && n == i {
				ops = append([]Op{{Group: data, What: sum, Of: fmt.Sprintf("gradients of chunk %d", a.Chunk), Later: true}}, ops...)
			}
			l.Actions = append(l.Actions, ops)
		}
		if stage := g.Coordinates(rank)[grid.Pipeline]; slices.Contains(tied, stage) {
			b := builder{Orders: o}
			for _, other := range tied {
				if other != stage {
					l.Tied.With = append(l.Tied.With, b.group(rank, other)...)
				}
			}
		}
		l.Norms = record(c.norms, "norm")
		if replicated {
			l.Norms = append(l.Norms, Op{Group: data, What: sum, Of: "the other gradients"})
			if split {
				l.Update = []Op{{Group: data, What: gather, Of: "weights"}}
			}
		}
		return l, nil
	}
}

// world is a random world, with so many mistakes that may be harmless; what says which.
func (r random) world(mistakes int) (w *World, what string) {
	o := r.orders()
	if mistakes > 0 && r.one(6) && o.Grid.Size(grid.Data) > 1 {
		// A replica with a table of its own, and gradients that are still added in the middle of the step.
		alike := o.Tables[0]
		if own := r.table(alike.NumRanks(), alike.NumChunks/alike.NumRanks(), alike.Microbatches); own.NumChunks == alike.NumChunks &&
			own.Placement == alike.Placement {
			o.Tables[r.IntN(len(o.Tables))] = own
			mistakes--
			what = "a replica's table; "
		}
	}
	w, err := o.World()
	if err != nil {
		panic(err)
	}
	for i := range w.Ranks { // lists that ranks share
		for k := range w.Ranks[i].Steps {
			w.Ranks[i].Steps[k].Ops = slices.Clone(w.Ranks[i].Steps[k].Ops)
		}
	}
	for range mistakes {
		what += r.mistake(w) + "; "
	}
	return w, what
}

// mistake changes something of a world.
func (r random) mistake(w *World) string {
	rank := r.IntN(len(w.Ranks))
	steps := w.Ranks[rank].Steps
	i := r.IntN(len(steps))
	var withOps []int
	for k := range steps {
		if len(steps[k].Ops) > 0 {
			withOps = append(withOps, k)
		}
	}
	if len(withOps) == 0 { // the mistakes before took all
		return "nothing"
	}
	step := &steps[withOps[r.IntN(len(withOps))]]
	at := r.IntN(len(step.Ops))
	o := &step.Ops[at]
	switch r.IntN(16) {
	case 0, 1: // two collectives swapped, of one step or of two
		other := &steps[withOps[r.IntN(len(withOps))]]
		k := r.IntN(len(other.Ops))
		step.Ops[at], other.Ops[k] = other.Ops[k], step.Ops[at]
		return "swapped"
	case 2, 3:
		step.Ops = slices.Delete(step.Ops, at, at+1)
		return "dropped"
	case 4: // one more
		step.Ops = slices.Insert(step.Ops, at, *o)
		return "doubled"
	case 5, 6: // another group, mostly of the same rank
		var groups []int
		for g := range w.Groups {
			if slices.Contains(w.Groups[g].Members, rank) || r.one(20) {
				groups = append(groups, g)
			}
		}
		if o.Group >= 0 && len(groups) > 0 {
			o.Group = int32(groups[r.IntN(len(groups))])
		}
		return "other group"
	case 7:
		if o.Group >= 0 {
			if o.What = r.what(); o.What == tensorops.Barrier.String() {
				o.Of, o.OfStep = "", false
			}
		}
		return "other collective"
	case 8:
		if o.Group >= 0 && o.What != tensorops.Barrier.String() {
			o.Of = "something else"
		}
		return "other numbers"
	case 9:
		if o.Group >= 0 {
			o.Later = !o.Later
		}
		return "now or later"
	case 10: // a wait more
		step.Ops = slices.Insert(step.Ops, at, []Op{Await, AwaitOne(1 + r.IntN(3))}[r.IntN(2)])
		return "awaited"
	case 11, 12: // fewer credits
		if len(w.Edges) > 0 {
			if e := &w.Edges[r.IntN(len(w.Edges))]; e.Credits > 0 {
				e.Credits = r.IntN(e.Credits)
			}
		}
		return "fewer credits"
	case 13: // two steps swapped
		k := r.IntN(len(steps))
		if r.one(2) {
			k = min(i+1, len(steps)-1)
		}
		steps[i], steps[k] = steps[k], steps[i]
		return "swapped steps"
	case 14: // ends early
		w.Ranks[rank].Steps = steps[:max(1, len(steps)-r.IntN(3))]
		return "ends early"
	default: // a message that is not sent, or not taken
		switch s := &steps[i]; {
		case len(s.Sends) > 0 && r.one(2):
			s.Sends = s.Sends[:len(s.Sends)-1]
		case len(s.Takes) > 0 && r.one(3):
			s.Takes = s.Takes[1:]
		}
		return "lost message"
	}
}

// agree compares what the checker says of a world with what its execution came to, and returns the verdict.
func agree(t rapid.TB, w *World, got *outcome, name string) error {
	t.Helper()
	faults, report := check(w)
	fail := func(format string, args ...any) {
		t.Helper()
		said := "all is well"
		if len(faults) > 0 {
			said = faults[0].Error()
		}
		t.Fatalf("%s: %s\nthe run: %v\nthe checker: %s", name, fmt.Sprintf(format, args...), got, said)
	}
	if len(faults) == 0 {
		if !got.clean() {
			fail("the checker finds nothing")
		}
		if report == nil || report.Steps == 0 {
			fail("no report")
		}
		return nil
	}
	if got.clean() {
		fail("the run ends well")
	}
	kind := faults[0].Kind
	if errors.Is(kind, ErrWorld) {
		return kind
	}
	differ, mixed := make(map[[2]int]bool), make(map[[2]int]bool)
	for _, f := range faults {
		switch {
		case errors.Is(f, ErrMismatch):
			differ[[2]int{f.Group, f.Number}] = true
		case errors.Is(f, ErrMixed):
			mixed[[2]int{f.Group, f.Number}] = true
		}
	}
	found := got.mismatches()
	if len(found) != len(got.errs) || len(found) > 0 != (len(differ) > 0) {
		fail("its errors are not those of members that differ")
	}
	for _, at := range found {
		if !differ[at] {
			fail("members differ in collective %d of group %d", at[1], at[0])
		}
	}
	for at := range got.wrong {
		if !mixed[at] {
			fail("wrong numbers in collective %d of group %d", at[1], at[0])
		}
	}
	if len(differ) > 0 {
		return ErrMismatch
	}
	// Nothing stops a rank but waiting: it is stuck where the checker says.
	p := newPlayer(w)
	p.play()
	stuck := make(map[int]int)
	for rank := range p.ranks {
		if !p.done(rank) {
			stuck[rank] = p.ranks[rank].step
		}
	}
	if len(stuck) != len(got.stuck) {
		fail("ranks and steps %v are stuck by the checker", stuck)
	}
	for rank, step := range stuck {
		if at, there := got.stuck[rank]; !there || at != step {
			fail("ranks and steps %v are stuck by the checker", stuck)
		}
	}
	if !errors.Is(kind, ErrMixed) {
		for _, rank := range faults[0].Ranks {
			if _, there := got.stuck[rank]; !there && errors.Is(kind, ErrDeadlock) {
				fail("rank %d of the cycle ends", rank)
			}
		}
	}
	return kind
}
