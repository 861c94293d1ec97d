package plan

import "github.com/troupe-ml/troupe/scheduler"

// recordedlists.go says which lists of a rank's row are recorded for a proof.

// pairsShareWeights reports whether the passes of an overlapped pair gather weights for each other (stages/zeroweights.go). What one of
// them records then depends on the other, so they are recorded as one list.
func (p *Plan) pairsShareWeights() bool { return p.cfg.Parallel.ExpertOverlap && p.zero() == 3 }

// listsOf returns the lists of a row: one for each action or, with together, for each action or overlapped pair.
func listsOf(row []scheduler.Action, together bool) (all [][]scheduler.Action) {
	for len(row) > 0 {
		n := 1
		if together {
			n = scheduler.Width(row, 0)
		}
		all, row = append(all, row[:n:n]), row[n:]
	}
	return all
}

// listKind is equal for lists with the same collectives. It has the actions of a list, of the microbatches that stand for theirs. After an
// action alone comes one of microbatch -1.
type listKind [2]scheduler.Action

func kindOf(list []scheduler.Action, as like) (k listKind) {
	k[1].Microbatch = -1
	for i, a := range list {
		a.Overlap, a.Microbatch = false, as(a.Microbatch)
		k[i] = a
	}
	return k
}

// firstOfKinds returns the microbatches of the first list of each kind. If all their actions are recorded, so is a list of each kind.
func firstOfKinds(lists [][]scheduler.Action, as like) map[int32]bool {
	seen, own := make(map[listKind]bool), make(map[int32]bool)
	for _, list := range lists {
		k := kindOf(list, as)
		if seen[k] {
			continue
		}
		seen[k] = true
		for _, a := range list {
			own[a.Microbatch] = true
		}
	}
	return own
}
