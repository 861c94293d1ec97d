package forecast

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
)

// pairedAction is an action of an overlapped pair, in which one computes while the tokens of the other travel to their experts.
type pairedAction struct {
	ms   float64 // its share of the time of the pair: in proportion to what each takes alone
	pair *playedPair
	side int // its list in the pair: 0, the forward, or 1
}

// pairedActions are the actions of a stage's pairs, whole and without Overlap.
type pairedActions map[scheduler.Action]pairedAction

// playedPair is the time of a pair whose lists are recorded in turns.
type playedPair struct {
	taken
	// Of the forward and of the backward: what each part takes of the rank, and the exchange after each part but the last of the
	// link. The simulation of a table in parts (scheduler.Table.Cut) with these takes ms, too.
	partMS    [2][]float64
	exchanges [2][]exchange
}

type exchange struct {
	back bool // from the experts
	ms   float64
}

// playPairs plays the pairs of all stages. alone is what an action takes alone.
func playPairs(b *plan.Plan, all []grouped, computeMS, alone scheduler.Costs) []pairedActions {
	type pair struct {
		forward, backward chunkPass
		turns             string // the table's own
	}
	paired := make([]pairedActions, len(all))
	for stage, row := range b.Table().Ranks {
		paired[stage] = make(pairedActions)
		g, known := all[stage], make(map[pair]*playedPair)
		for i := 0; i < len(row); i += scheduler.Width(row, i) {
			if scheduler.Width(row, i) == 1 {
				continue
			}
			var lists [2][]step
			var keys [2]chunkPass
			sum := 0.0
			for k := range lists {
				a := row[i+k]
				keys[k] = chunkPass{int(a.Chunk), g.passOf(a)}
				lists[k] = timed(g.passes[keys[k]], computeMS(stage, a))
				sum += alone(stage, a)
			}
			key := pair{keys[0], keys[1], fmt.Sprint(b.Table().OwnTurns(stage, i))}
			played, there := known[key]
			if !there {
				played = playPair(func(parts ...int) []int {
					usual, own := scheduler.Turns(parts...), b.Table().OwnTurns(stage, i)
					if !slices.Equal(slices.Sorted(slices.Values(own)), slices.Sorted(slices.Values(usual))) {
						return usual // there is none, or plan.Plan.CheckWorld refuses it
					}
					return own
				}, lists)
				known[key] = played
			}
			share := 1.0
			if sum > 0 {
				share = played.ms / sum
			}
			for k := range lists {
				a := row[i+k]
				a.Overlap = false
				paired[stage][a] = pairedAction{share * alone(stage, a), played, k}
			}
		}
	}
	return paired
}

// playPair plays two lists in the order of turns, with steps whose shares are milliseconds.
func playPair(order func(parts ...int) []int, lists [2][]step) *playedPair {
	steps, turns := inTurns(order, lists[:]...)
	now, arrived := make([]float64, len(steps)), make(map[int]float64) // by step, and by number of a collective
	back := make(map[int]bool)
	p := &playedPair{taken: playWith(steps, 1, func(i int, at, there float64) {
		if now[i] = at; steps[i].begins {
			arrived[steps[i].number], back[steps[i].number] = there, steps[i].back
		}
	})}
	// What follows is what the simulation of parts does (scheduler.Machine), with the times that make it end when each turn does.
	rank, link := 0.0, 0.0
	var came [2]float64
	for _, t := range turns {
		begins := max(rank, came[t.list])
		ends := begins
		if t.to > t.from {
			ends = max(begins, now[t.to-1])
		}
		p.partMS[t.list] = append(p.partMS[t.list], ends-begins)
		rank = ends
		if t.last {
			continue
		}
		x, there := exchange{}, 0.0
		for _, number := range t.awaited {
			there, x.back = max(there, arrived[number]), x.back || back[number]
		}
		begins = max(link, rank)
		x.ms = max(0, there-begins)
		link = begins + x.ms
		came[t.list] = link
		p.exchanges[t.list] = append(p.exchanges[t.list], x)
	}
	of := p.partMS[turns[len(turns)-1].list] // sums of gradients may still be under way
	of[len(of)-1] += max(0, p.ms-rank)
	return p
}

// types returns the exchanges of an action, for scheduler.Table.Cut.
func (p pairedAction) types() (types []scheduler.Type) {
	out, back := scheduler.FD, scheduler.FC
	if p.side == 1 {
		out, back = scheduler.BD, scheduler.BC
	}
	for _, x := range p.pair.exchanges[p.side] {
		if x.back {
			types = append(types, back)
		} else {
			types = append(types, out)
		}
	}
	return types
}

// of returns the paired action that a part or an exchange belongs to.
func (p pairedActions) of(a scheduler.Action) (of pairedAction, there bool) {
	exchange := a.Type.IsExchange()
	if a.Overlap, a.Part = false, 0; !exchange {
		of, there = p[a]
		return of, there
	}
	types := []scheduler.Type{scheduler.B, scheduler.I}
	if a.Type.IsForward() {
		types = []scheduler.Type{scheduler.F}
	}
	for _, t := range types {
		if a.Type = t; !there {
			of, there = p[a]
		}
	}
	return of, there
}

// Parts returns the table and its timeline with overlapped pairs cut at their exchanges of tokens, which shows what each hides
// behind. Without such pairs it is Order with Timeline.
func (p *Prediction) Parts() (*scheduler.Table, *scheduler.Timeline, error) {
	if p.paired == nil {
		return p.Order, p.Timeline, nil
	}
	cut, err := p.Order.Cut(func(a scheduler.Action) []scheduler.Type {
		of, there := p.paired[p.Order.RankOf(int(a.Chunk))].of(a)
		if !there {
			return nil
		}
		return of.types()
	})
	if err != nil {
		return nil, nil, err
	}
	m := p.machine
	m.Costs = func(stage int, a scheduler.Action) float64 {
		if of, there := p.paired[stage].of(a); there && a.Type.IsExchange() {
			return of.pair.exchanges[of.side][a.Part-1].ms
		}
		return p.machine.Costs(stage, a)
	}
	m.PartCosts = func(stage int, a scheduler.Action) float64 {
		of, _ := p.paired[stage].of(a)
		return of.pair.partMS[of.side][a.Part-1] + p.carried(stage, a)
	}
	tl, err := m.Simulate(cut)
	return cut, tl, err
}

// timed returns steps whose shares are milliseconds.
func timed(steps []step, ms float64) []step {
	if len(steps) == 0 {
		return []step{{share: ms}}
	}
	out := make([]step, len(steps))
	for i, s := range steps {
		s.share *= ms
		out[i] = s
	}
	return out
}

// turn is a part of a list among those of others: its steps, up to where the list gives way.
type turn struct {
	list     int
	from, to int
	last     bool  // of its list
	awaited  []int // numbers of the collectives for which the next turn of the list waits
}

// inTurns returns the steps of lists that are recorded into one, each of which gives way to the next where it would wait for an
// exchange of tokens: see stages.ActTogether. order returns the order of so many parts, as scheduler.Turns does. With ZeRO-3, a list does
// not gather a weight that another one has.
func inTurns(order func(parts ...int) []int, lists ...[]step) (all []step, turns []turn) {
	parts, lengths := make([][][]step, len(lists)), make([]int, len(lists))
	for i, steps := range lists {
		from, exchange := 0, make(map[int]bool) // by number
		for _, s := range steps {
			if s.begins {
				exchange[s.number] = s.dim == grid.Expert
			}
		}
		one := func(k int) bool { return steps[k].awaits && exchange[steps[k].number] }
		for k := range steps {
			if one(k) && (k == 0 || !one(k-1)) {
				parts[i] = append(parts[i], steps[from:k])
				from = k
			}
		}
		parts[i] = append(parts[i], steps[from:])
		lengths[i] = len(parts[i])
	}
	next, numbers, begun := make([]int, len(lists)), make([]map[int]int, len(lists)), 0
	latest := make([]int, len(lists)) // turn of each list
	at, frees, held := make([]int, len(lists)), make([][][]uint64, len(lists)), make(map[uint64]*heldWeight)
	for i := range numbers {
		numbers[i], frees[i] = make(map[int]int), freesOf(lists[i])
	}
	free := func(weights []uint64) {
		for _, w := range weights {
			if held[w].lists--; held[w].lists == 0 {
				delete(held, w)
			}
		}
	}
	for _, i := range order(lengths...) {
		t := turn{list: i, from: len(all), last: next[i] == lengths[i]-1}
		for _, s := range parts[i][next[i]] {
			free(frees[i][at[i]])
			at[i]++
			switch {
			case s.weight != 0 && held[s.weight] != nil:
				held[s.weight].lists++
				numbers[i][s.number] = held[s.weight].number
				continue
			case s.begins:
				begun++
				if s.weight != 0 {
					held[s.weight] = &heldWeight{begun, 1}
				}
				numbers[i][s.number] = begun
				s.number = begun
			case s.awaits && s.number > 0:
				s.number = numbers[i][s.number] // 0, if its group has one rank: there is nothing to wait for
				if s.number == 0 {
					continue
				}
				if next[i] > 0 && len(all) == t.from+len(turns[latest[i]].awaited) { // one of those at its start
					turns[latest[i]].awaited = append(turns[latest[i]].awaited, s.number)
				}
			}
			all = append(all, s)
		}
		if t.to = len(all); t.last {
			free(frees[i][at[i]])
		}
		latest[i] = len(turns)
		turns = append(turns, t)
		next[i]++
	}
	return all, turns
}

// heldWeight is a weight that some lists have gathered.
type heldWeight struct{ number, lists int } // number: of its collective

// freesOf returns which gathered weights a list frees before each of its steps, and at its end. A layer gathers the next one's weights
// after it has waited for its own (stages/zeroweights.go). So the first wait for a layer's weights is where those of the layer before it
// are free.
func freesOf(steps []step) (frees [][]uint64) {
	frees = make([][]uint64, len(steps)+1)
	gathers := make(map[int]bool) // by number
	var own, next []uint64        // of the layer that computes, and of the next one
	for k, s := range steps {
		switch {
		case s.weight != 0:
			gathers[s.number] = true
			next = append(next, s.weight)
		case s.awaits && gathers[s.number] && len(next) > 0:
			frees[k], own, next = own, next, nil
		}
	}
	frees[len(steps)] = append(own, next...)
	return frees
}
