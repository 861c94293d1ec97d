package scheduler

import (
	"fmt"
	"slices"
)

// Whole returns a table whose actions are whole, as a run records them: the reverse of Cut. OwnTurns has the order of the parts that they
// were cut into. A table without parts is returned as it is. Check must accept the table. In a run tokens travel as soon as a part has
// ended, so an exchange that does not stand right after its part is refused with ErrExchange.
func (t *Table) Whole() (*Table, error) {
	if !t.HasParts() {
		return t, nil
	}
	out := *t
	out.Ranks, out.turns = make([][]Action, len(t.Ranks)), make(map[place]turns)
	for r, row := range t.Ranks {
		for i := 0; i < len(row); {
			group := row[i : i+Width(row, i)]
			if group[0].Part == 0 {
				out.Ranks[r] = append(out.Ranks[r], group...)
				i += len(group)
				continue
			}
			var own turns
			var whole [2][]Action // by side
			for k, a := range group {
				switch {
				case !a.Type.IsExchange():
					own.order = append(own.order, a.side())
					if a.Part == 1 {
						whole[a.side()] = []Action{a.whole()}
					}
				case k == 0 || group[k-1].Type.IsExchange() || group[k-1].side() != a.side():
					return nil, t.fault(ErrExchange, r, i+k, fmt.Sprintf("%v does not stand right after part %d of its action, but a run "+
						"sends tokens as soon as a part has ended: move it there", a, a.Part))
				default:
					own.exchanges[a.side()] = append(own.exchanges[a.side()], a.Type)
				}
			}
			one := slices.Concat(whole[:]...)
			for k := range len(one) - 1 {
				one[k].Overlap = true
			}
			out.turns[place{r, len(out.Ranks[r])}] = own
			out.Ranks[r] = append(out.Ranks[r], one...)
			i += len(group)
		}
	}
	return &out, nil
}

// turns is the order of the parts of actions that run as one.
type turns struct {
	order     []int     // see Table.OwnTurns
	exchanges [2][]Type // by side: the exchange after each part but the last
}

// HasTurns reports whether Whole has joined parts.
func (t *Table) HasTurns() bool { return len(t.turns) > 0 }

// OwnTurns returns the order of the parts that Whole has joined to the actions that run as one from a position of a rank's row on. Like
// Turns, it has the index of an action for each part. nil: there were no parts, and the order is that of Turns.
func (t *Table) OwnTurns(rank, position int) []int { return t.turns[place{rank, position}].order }

// TurnsOf returns the order in which the actions that run as one from a position of a rank's row on take turns: that of OwnTurns, or else
// that of Turns. exchanges has the exchanges of tokens of each action. If the table was written with others, the error is ErrExchange.
func (t *Table) TurnsOf(rank, position int, exchanges ...[]Type) ([]int, error) {
	own, there := t.turns[place{rank, position}]
	parts := make([]int, len(exchanges))
	for i, want := range exchanges {
		if parts[i] = len(want) + 1; !there {
			continue
		}
		a := t.Ranks[rank][position+i].whole()
		got := own.exchanges[a.side()]
		if len(got) != len(want) {
			return nil, t.fault(ErrExchange, rank, position+i, fmt.Sprintf("%v is written in %d parts, but this model exchanges tokens "+
				"%d times in it: write it whole, or in %d parts", a, len(got)+1, len(want), len(want)+1))
		}
		for k, typ := range want {
			if got[k] != typ {
				return nil, t.fault(ErrExchange, rank, position+i, fmt.Sprintf("exchange %d of %v is written as %v, but is %v with this "+
					"model", k+1, a, got[k], typ))
			}
		}
	}
	if !there {
		return Turns(parts...), nil
	}
	return own.order, nil
}
