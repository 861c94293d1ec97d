package scheduler

import (
	"errors"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// checkChunks says that every chunk up to the highest stands on some row. A row that
// was forgotten shows here.
func (s *csvTable) checkChunks() error {
	t := s.table
	// Of more chunks than cells, one of the first lacks.
	holds := make([]bool, min(t.NumChunks, t.numActions()+1))
	for _, a := range s.cells {
		if a.Type <= B && int(a.Chunk) < len(holds) {
			holds[a.Chunk] = true
		}
	}
	for lacking, held := range holds {
		if held {
			continue
		}
		for at, a := range s.cells {
			if a.Type <= B && int(a.Chunk) > lacking {
				return s.fail(at, ErrIncomplete, "%v, but no row holds chunk %d: is a row missing?", a, lacking)
			}
		}
	}
	return nil
}

// choosePlacement takes the placement that fits the rows best.
func (s *csvTable) choosePlacement() error {
	t := s.table
	fits := false
	t.Placement, fits = t.guessPlacement()
	for at, a := range s.cells {
		if fits {
			break
		}
		if a.Type <= B && int(a.Chunk) == t.NumChunks-1 {
			return s.fail(at, ErrTable,
				"%v makes %s on %s: placements loop and V need a multiple of the rows, U one more",
				a, words.Plural(t.NumChunks, "chunk"), words.Plural(t.NumRanks(), "row"))
		}
	}
	return nil
}

// checkActions is what Check asks of the actions of any table.
func (s *csvTable) checkActions() (err error) {
	s.index, err = s.table.checkActions(true)
	var f *fault
	if errors.As(err, &f) && errors.Is(err, ErrRank) {
		f.text += ", which fits the rows best"
	}
	return err
}

// checkProgress says that all ranks come to their ends.
func (s *csvTable) checkProgress() error {
	return newPlayer(s.table, s.index).play(Machine{Costs: UnitCosts})
}
