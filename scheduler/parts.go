package scheduler

import (
	"errors"
	"fmt"
	"slices"
)

// Turns returns the order in which the parts of several actions run that take turns: the first part
// of each, the second of each, and so on; an action that has no more is left out. Each entry is the
// index of an action. Runs, proofs and simulations go by it, except where a table has its own order:
// see Table.OwnTurns.
func Turns(parts ...int) []int {
	var order []int
	for k, more := 0, true; more; k++ {
		more = false
		for i, n := range parts {
			if k < n {
				order, more = append(order, i), true
			}
		}
	}
	return order
}

// Cut returns the table with the actions of each overlapped pair cut at their exchanges of tokens
// with the ranks of their experts, in turns: while the tokens of one travel, the other computes. The
// order is that of TurnsOf.
// exchanges returns those of an action in order, such as FD and FC for each layer with experts of a
// forward. A pair without any stays whole, and so does everything else. A run records a pair in this
// order; its table has the whole pair.
func (t *Table) Cut(exchanges func(a Action) []Type) (*Table, error) {
	out := *t
	out.Ranks, out.turns = make([][]Action, len(t.Ranks)), nil
	entries := 0
	for r, row := range t.Ranks {
		for i := 0; i < len(row); {
			n := Width(row, i)
			group, err := cutGroup(row[i:i+n], exchanges, func(all ...[]Type) ([]int, error) { return t.TurnsOf(r, i, all...) })
			if errors.As(err, new(*fault)) {
				return nil, err
			}
			if err != nil {
				return nil, t.fault(ErrTable, r, i, err.Error())
			}
			if entries += len(group); entries > MaxActions {
				return nil, t.fault(ErrTable, r, i, fmt.Sprintf("the rows up to here have %d parts and exchanges; the limit is %d", entries,
					MaxActions))
			}
			out.Ranks[r] = append(out.Ranks[r], group...)
			i += n
		}
	}
	return &out, nil
}

func cutGroup(group []Action, exchanges func(a Action) []Type, turns func(all ...[]Type) ([]int, error)) (out []Action,
	err error) {
	if len(group) == 1 || group[0].Part > 0 {
		return group, nil
	}
	all := make([][]Type, len(group))
	any := false
	for i, a := range group {
		a.Overlap = false
		all[i] = exchanges(a)
		if len(all[i]) >= MaxParts {
			return nil, fmt.Errorf("%v has %d exchanges; the limit is %d", a, len(all[i]), MaxParts-1)
		}
		any = any || len(all[i]) > 0
	}
	if !any {
		return group, nil
	}
	order, err := turns(all...)
	if err != nil {
		return nil, err
	}
	next := make([]int, len(group))
	for _, i := range order {
		a, k := group[i], next[i]
		next[i]++
		a.Overlap, a.Part = true, uint16(k+1)
		out = append(out, a)
		if k < len(all[i]) {
			a.Type = all[i][k]
			out = append(out, a)
		}
	}
	out[len(out)-1].Overlap = false
	return out, nil
}

// ExpertLayers returns the exchanges of a chunk with n layers with experts, for Cut: each layer of a pass
// sends the tokens to their experts, and the results back.
func ExpertLayers(n int) func(a Action) []Type {
	return func(a Action) []Type {
		switch a.Type {
		case F:
			return slices.Repeat([]Type{FD, FC}, max(n, 0))
		case I, B:
			return slices.Repeat([]Type{BD, BC}, max(n, 0))
		}
		return nil
	}
}

// Fraction returns how much of its action the entry at a position of a row computes: 1 for a whole
// action, 1/n for each of n parts, and 0 for an exchange, which takes the link and not the rank.
func (t *Table) Fraction(rank, position int) float64 {
	row := t.Ranks[rank]
	switch a := row[position]; {
	case a.Type.IsExchange():
		return 0
	case a.Part == 0:
		return 1
	}
	first := position
	for first > 0 && row[first-1].Overlap {
		first--
	}
	return 1 / float64(partsOf(row[first : first+Width(row, first)])[row[position].side()])
}

// partsOf returns the number of parts of the forward and of the backward of a group.
func partsOf(group []Action) (n [2]int) {
	for _, a := range group {
		if !a.Type.IsExchange() {
			n[a.side()]++
		}
	}
	return n
}

// CheckExchanges checks tables whose ranks exchange tokens: each action in parts has the exchanges of
// the model, which exchanges returns as for Cut. The tables are those of pipelines whose ranks share
// experts: the ranks of one stage must exchange tokens in the same order, in whole actions and in
// parts. Check must accept each of them. The error is ErrExchange.
func CheckExchanges(exchanges func(a Action) []Type, tables ...*Table) error {
	for k, t := range tables {
		if err := t.checkExchanges(exchanges); err != nil {
			return err
		}
		first := tables[0]
		if len(t.Ranks) != len(first.Ranks) {
			return fmt.Errorf("%w: table 0 has %d ranks, table %d has %d", ErrExchange, len(first.Ranks), k, len(t.Ranks))
		}
		for r := range t.Ranks {
			a, b := exchangesOf(first.Ranks[r], exchanges), exchangesOf(t.Ranks[r], exchanges)
			for i := range max(len(a), len(b)) {
				switch {
				case i >= len(b):
					return first.fault(ErrExchange, r, a[i].at, fmt.Sprintf("%v of rank %d exchanges tokens, but rank %d of table %d has only %d "+
						"exchanges", a[i].Action, r, r, k, len(b)))
				case i >= len(a):
					return t.fault(ErrExchange, r, b[i].at, fmt.Sprintf("%v of rank %d of table %d exchanges tokens, but in table 0 it has only %d "+
						"exchanges", b[i].Action, r, k, len(a)))
				case a[i].Action != b[i].Action:
					return t.fault(ErrExchange, r, b[i].at, fmt.Sprintf(
						"exchange %d of rank %d is %v in table 0, but %v in table %d; the ranks of a stage exchange tokens with each other, "+
							"so give them one order", i+1, r, a[i].Action, b[i].Action, k))
				}
			}
		}
	}
	return nil
}

// checkExchanges checks that actions in parts have the exchanges of the model.
func (t *Table) checkExchanges(exchanges func(a Action) []Type) error {
	for r, row := range t.Ranks {
		var open [2]Action // the latest part of a forward and of a backward
		for i, a := range row {
			if a.Part == 0 {
				continue
			}
			last, pass := &open[a.side()], a.whole()
			if a.Type.IsExchange() {
				pass.Type = last.Type
			}
			all := exchanges(pass)
			switch at := int(a.Part) - 1; {
			case a.Type.IsExchange() && at >= len(all):
				return t.fault(ErrExchange, r, i, fmt.Sprintf("%v: %v has %d exchanges of tokens in this model", a, pass, len(all)))
			case a.Type.IsExchange() && a.Type != all[at]:
				return t.fault(ErrExchange, r, i, fmt.Sprintf("%v: exchange %d of %v is %v in this model", a, a.Part, pass, all[at]))
			case !a.Type.IsExchange() && at != len(all) && !t.goesOn(r, i):
				return t.fault(ErrExchange, r, i, fmt.Sprintf("%v is the last part of its action, which has %d exchanges of tokens in this model",
					a, len(all)))
			case !a.Type.IsExchange():
				*last = pass
			}
		}
	}
	return nil
}

// goesOn reports whether an exchange of the action of a part follows in its group.
func (t *Table) goesOn(rank, i int) bool {
	row := t.Ranks[rank]
	for k := i + 1; k < len(row) && row[k-1].Overlap; k++ {
		if row[k].Type.IsExchange() && row[k].side() == row[i].side() {
			return true
		}
	}
	return false
}

// exchangeAt is an exchange of a row: its type and number, and its position.
type exchangeAt struct {
	Action
	at int
}

func exchangesOf(row []Action, exchanges func(a Action) []Type) (all []exchangeAt) {
	for i, a := range row {
		a.Overlap = false
		switch {
		case a.Type.IsExchange():
			all = append(all, exchangeAt{a, i})
		case a.Part == 0:
			for k, typ := range exchanges(a) {
				e := a
				e.Type, e.Part = typ, uint16(k+1)
				all = append(all, exchangeAt{e, i})
			}
		}
	}
	return all
}
