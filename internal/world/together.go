package world

import (
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
)

// inOneList returns the operations of actions that are recorded into one list: those of one after the other or, if the actions
// overlap, in turns. An action then gives way to the next where it would wait for an exchange of tokens (stages.ActTogether), in the
// order of turns, which gets the exchanges of each.
func inOneList(group []scheduler.Action, actions [][]Op, overlap bool,
	turns func(exchanges ...[]scheduler.Type) ([]int, error)) (all []Op, err error) {
	parts := make([][][]Op, len(actions))
	exchanges := make([][]scheduler.Type, len(actions))
	for i, ops := range actions {
		parts[i] = [][]Op{ops}
		if overlap {
			parts[i], exchanges[i] = cut(ops, group[i].Type.IsForward())
		}
	}
	order, err := turns(exchanges...)
	if err != nil {
		return nil, err
	}
	if len(actions) == 1 {
		return actions[0], nil
	}
	next := make([]int, len(actions))
	numbers := make([][]int32, len(actions)) // by action and number - 1: the number in the list
	begins := int32(0)
	for _, i := range order {
		for _, o := range parts[i][next[i]] {
			switch {
			case o.Group >= 0 && o.Later:
				begins++
				numbers[i] = append(numbers[i], begins)
			case o.Group < 0 && o.Number > 0:
				o.Number = numbers[i][o.Number-1]
			}
			all = append(all, o)
		}
		next[i]++
	}
	return all, nil
}

// ofAction makes the action part of what the operations of a pair are of: its step has the name of both actions.
func ofAction(ops []Op, a scheduler.Action, pair bool) []Op {
	if !pair {
		return ops
	}
	ops = slices.Clone(ops)
	for i := range ops {
		if o := &ops[i]; o.OfStep {
			o.Of, o.OfStep = a.String()+" "+o.Of, false
		}
	}
	return ops
}

// ofParts returns the operations of actions that are cut into parts: those of an exchange continue until the next part of its action.
func ofParts(group []scheduler.Action, lists [][]Op) (all []Op) {
	var open [2][]int // numbers of those that go on, of the forward and of the backward
	begins := 0
	for k, a := range group {
		side := &open[0]
		if !a.Type.IsForward() {
			side = &open[1]
		}
		if !a.Type.IsExchange() {
			for _, number := range *side {
				all = append(all, AwaitOne(number))
			}
			*side = nil
		}
		for _, o := range lists[k] {
			if o.Later = o.Later || a.Type.IsExchange(); o.Later && o.Group >= 0 {
				begins++
				if a.Type.IsExchange() {
					*side = append(*side, begins)
				}
			}
			all = append(all, o)
		}
	}
	return all
}

// cut cuts the operations of an action before each wait for an exchange of tokens, or for several in a row, and returns the exchanges
// between the parts.
func cut(ops []Op, forward bool) (parts [][]Op, exchanges []scheduler.Type) {
	out, back := scheduler.FD, scheduler.FC
	if !forward {
		out, back = scheduler.BD, scheduler.BC
	}
	var begun []Op // by number - 1
	for _, o := range ops {
		if o.Group >= 0 && o.Later {
			begun = append(begun, o)
		}
	}
	one := func(i int) bool {
		n := int(ops[i].Number)
		return ops[i].Group < 0 && n > 0 && n <= len(begun) && begun[n-1].Exchange
	}
	from := 0
	for i := range ops {
		if !one(i) {
			continue
		}
		if i == 0 || !one(i-1) {
			parts, exchanges = append(parts, ops[from:i]), append(exchanges, out)
			from = i
		}
		if begun[ops[i].Number-1].Back {
			exchanges[len(exchanges)-1] = back
		}
	}
	return append(parts, ops[from:]), exchanges
}
