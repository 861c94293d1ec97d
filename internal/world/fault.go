package world

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fault is an error in a world: what is wrong, where, and what to do.
type Fault struct {
	World  string
	Kind   error  // an Err of this package
	Text   string // what is wrong
	Group  int    // the group, if the fault concerns a collective; otherwise -1
	Number int    // the collective's number in its group, from 1
	Ranks  []int  // the ranks concerned
	Advice string // what to do

	picture string
}

func (f *Fault) Unwrap() error { return f.Kind }

func (f *Fault) Error() string {
	var s strings.Builder
	if f.World != "" {
		fmt.Fprintf(&s, "%s: ", f.World)
	}
	fmt.Fprintf(&s, "%v: %s", f.Kind, f.Text)
	if f.Advice != "" {
		fmt.Fprintf(&s, "\n%s", f.Advice)
	}
	if f.picture != "" {
		fmt.Fprintf(&s, "\n%s", f.picture)
	}
	return s.String()
}

// Advice for each kind of fault.
const (
	adviceOrder = "What to do: the ranks of a group must have the same collectives in the same order. " +
		"Give its members the same table, or move their collectives to the end of the step"
	adviceMissing = "What to do: give the collective to every rank of the group, or to none; the rows of its members must have the same actions"
	adviceCycle   = "What to do: give the steps of these ranks the same order; groups that share ranks must meet in the same order everywhere"
	adviceCredit  = "What to do: give the edge more credits, or let the receiving rank take its messages before it waits for its group"
)

// name returns a rank's name for errors.
func (w *World) name(rank int) string {
	if n := w.Ranks[rank].Name; n != "" {
		return fmt.Sprintf("rank %d (%s)", rank, n)
	}
	return fmt.Sprintf("rank %d", rank)
}

// few lists the first ranks, and how many more there are.
func few(ranks []int) string {
	const most = 8
	var s strings.Builder
	for i, r := range ranks[:min(len(ranks), most)] {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprint(&s, r)
	}
	if len(ranks) > most {
		fmt.Fprintf(&s, " and %d more", len(ranks)-most)
	}
	return s.String()
}

// brings describes the collective that a member has reached.
func (p *player) brings(c call) string {
	o, step := p.op(c), &p.w.Ranks[c.rank].Steps[c.step]
	text := fmt.Sprintf("%s has %s in %s", p.w.name(c.rank), o.What, step.Name)
	if o.Of != "" {
		text += " (" + o.Of + ")"
	}
	return text
}

// differ returns the fault of two members that disagree.
func (p *player) differ(kind error, group, number int, a, b call) *Fault {
	g := p.w.Groups[group]
	text := fmt.Sprintf("group %s, collective %d: %s, %s", g.Name, number+1, p.brings(a), p.brings(b))
	if errors.Is(kind, ErrMixed) {
		text += "; a run would not notice this, and its numbers would be wrong"
	}
	return &Fault{World: p.w.Name, Kind: kind, Text: text, Group: group, Number: number + 1, Ranks: []int{a.rank, b.rank}, Advice: adviceOrder,
		picture: p.w.picture([]int{a.rank, b.rank}, map[int]int{a.rank: a.step, b.rank: b.step})}
}

// tooMany returns the fault of a rank that begins too many collectives.
func (w *World) tooMany(rank, step, group, n int) *Fault {
	return &Fault{World: w.Name, Kind: ErrPending, Group: group, Ranks: []int{rank},
		Text: fmt.Sprintf("%s: %s starts %d collectives of group %s before it awaits one, but the limit is %d", w.name(rank),
			w.Ranks[rank].Steps[step].Name, n, w.Groups[group].Name, w.Pending),
		Advice:  "What to do: await them earlier, or merge small ones",
		picture: w.picture([]int{rank}, map[int]int{rank: step})}
}

// wait is what blocks a rank, and which other rank it waits for.
type wait struct {
	rank, other   int
	text          string
	group, number int // of a collective; group -1: it is no collective
	credit        bool
}

// waitOf returns what a blocked rank waits for.
func (p *player) waitOf(rank int) wait {
	s := &p.ranks[rank]
	step := &p.w.Ranks[rank].Steps[s.step]
	v := wait{rank: rank, group: -1}
	if !s.begun {
		for _, m := range step.Takes {
			if e := p.w.Edges[m.Edge]; !p.arrived[m] {
				v.other = e.From
				v.text = fmt.Sprintf("%s needs the message that %s of %s sends over edge %s", step.Name, p.stepWith(e.From, m, false), p.w.name(e.From),
					e.Name)
				return v
			}
		}
		for i, m := range step.Sends {
			if !p.hasCredit(step.Sends, i) {
				e := p.w.Edges[m.Edge]
				v.other, v.credit = e.To, true
				v.text = fmt.Sprintf("%s needs one of the %d credits of edge %s; the next one returns with %s of %s", step.Name, e.Credits, e.Name,
					p.nextTaker(e.To, m.Edge), p.w.name(e.To))
				return v
			}
		}
	}
	// The oldest collective that it has reached, or the one that it awaits: the collectives of a group end in order.
	awaited, number := 0, 0
	if s.op < len(step.Ops) {
		awaited = int(step.Ops[s.op].Number)
	}
	for i := range step.Ops[:min(len(step.Ops), s.op+1)] {
		o := step.Ops[i]
		if o.Group >= 0 && o.Later {
			number++
		}
		if o.Group < 0 || awaited > 0 && (!o.Later || number != awaited) {
			continue
		}
		g := &p.groups[o.Group]
		if len(g.rounds) == 0 || g.next[g.place[rank]] <= g.base {
			continue
		}
		for k, c := range g.rounds[0].calls {
			if c.here {
				continue
			}
			v.group, v.number, v.other = int(o.Group), g.base, p.w.Groups[o.Group].Members[k]
			mine := g.rounds[0].calls[g.place[rank]]
			v.text = fmt.Sprintf("%s waits in %s, collective %d of group %s, for %s", step.Name, p.op(mine).What, g.base+1, p.w.Groups[o.Group].Name,
				p.w.name(v.other))
			return v
		}
	}
	v.other, v.text = rank, step.Name+" waits for an unknown reason"
	return v
}

// stepWith names the step of a rank that sends or takes a message.
func (p *player) stepWith(rank int, m Message, takes bool) string {
	for i := range p.w.Ranks[rank].Steps {
		step := &p.w.Ranks[rank].Steps[i]
		list := step.Sends
		if takes {
			list = step.Takes
		}
		if slices.Contains(list, m) {
			return step.Name
		}
	}
	return "no step"
}

// nextTaker names the step of a rank that next returns a credit of an edge.
func (p *player) nextTaker(rank int, edge int32) string {
	steps := p.w.Ranks[rank].Steps
	first := p.ranks[rank].step
	if first < len(steps) && p.ranks[rank].begun {
		first++
	}
	for _, step := range steps[min(first, len(steps)):] {
		if slices.ContainsFunc(step.Takes, func(m Message) bool { return m.Edge == edge }) {
			return step.Name
		}
	}
	return "no step"
}

// explain returns the fault that blocks a rank. The rank that it waits for has finished or waits itself. So following the waits
// leads to a rank that never arrives, or to a cycle.
func (p *player) explain(rank int) *Fault {
	position := make(map[int]int) // in the chain
	var chain []wait
	for {
		if p.done(rank) {
			last := chain[len(chain)-1]
			f := p.fault(ErrMissing, []wait{last}, rank)
			f.Text = fmt.Sprintf("%s has finished its steps and never arrives: %s: %s", p.w.name(rank), p.w.name(last.rank), last.text)
			f.Group, f.Number, f.Advice = last.group, last.number+1, adviceMissing
			return f
		}
		if at, seen := position[rank]; seen {
			f := p.fault(ErrDeadlock, chain[at:])
			f.Text = "these ranks wait for each other in a cycle"
			const most = 8
			for i, v := range chain[at:] {
				if i == most {
					f.Text += fmt.Sprintf("\n  … and %d more ranks", len(chain[at:])-most)
					break
				}
				f.Text += fmt.Sprintf("\n  %s: %s", p.w.name(v.rank), v.text)
			}
			f.Advice = adviceCycle
			if slices.ContainsFunc(chain[at:], func(v wait) bool { return v.credit }) {
				f.Advice = adviceCredit
			}
			return f
		}
		position[rank] = len(chain)
		v := p.waitOf(rank)
		chain = append(chain, v)
		rank = v.other
	}
}

// fault returns a fault about waiting ranks, and others.
func (p *player) fault(kind error, waits []wait, others ...int) *Fault {
	f := &Fault{World: p.w.Name, Kind: kind, Group: -1}
	at := make(map[int]int)
	for _, v := range waits {
		f.Ranks = append(f.Ranks, v.rank)
		if v.group >= 0 && f.Group < 0 {
			f.Group, f.Number = v.group, v.number+1
		}
	}
	for _, r := range others {
		if !slices.Contains(f.Ranks, r) {
			f.Ranks = append(f.Ranks, r)
		}
	}
	for _, r := range f.Ranks {
		at[r] = p.ranks[r].step
	}
	f.picture = p.w.picture(f.Ranks, at)
	return f
}

// picture draws the steps of each rank around its current step, which stands in brackets.
func (w *World) picture(ranks []int, at map[int]int) string {
	const most, around = 8, 3
	var lines []string
	ranks = slices.Sorted(slices.Values(ranks))
	for i, r := range ranks {
		if i == most {
			lines = append(lines, fmt.Sprintf("  … %d more ranks", len(ranks)-most))
			break
		}
		steps, step := w.Ranks[r].Steps, at[r]
		var line strings.Builder
		fmt.Fprintf(&line, "  rank %-*d ", len(fmt.Sprint(ranks[len(ranks)-1])), r)
		if step > around {
			line.WriteString("…")
		}
		for k := max(0, step-around); k < min(len(steps), step+around+1); k++ {
			if k == step {
				fmt.Fprintf(&line, "[%s]", steps[k].Name)
			} else {
				fmt.Fprintf(&line, " %s ", steps[k].Name)
			}
		}
		switch {
		case step >= len(steps):
			line.WriteString("[end]")
		case step+around+1 < len(steps):
			line.WriteString("…")
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return strings.Join(lines, "\n")
}
