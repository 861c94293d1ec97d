package scheduler

import (
	"errors"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// checkChunks checks that every chunk up to the highest occurs in some row. This finds a forgotten
// row.
func (s *csvTable) checkChunks() error {
	t := s.table
	// If there are more chunks than cells, one of the first chunks is missing.
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
				return s.fail(at, ErrIncomplete, "%v, but no row holds chunk %d; check whether a row is missing", a, lacking)
			}
		}
	}
	return nil
}

// choosePlacement chooses the placement that fits the rows best.
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
				"%v makes %s on %s: placements loop and V need a multiple of the number of rows, placement U one chunk more than rows",
				a, words.Plural(t.NumChunks, "chunk"), words.Plural(t.NumRanks(), "row"))
		}
	}
	return nil
}

// checkActions runs the checks of Check on the actions.
func (s *csvTable) checkActions() (err error) {
	s.index, err = s.table.checkActions(true)
	var f *fault
	if errors.As(err, &f) && errors.Is(err, ErrRank) {
		f.text += ", which fits the rows best"
	}
	return err
}

// checkProgress checks that all ranks finish.
func (s *csvTable) checkProgress() error {
	return newPlayer(s.table, s.index).play(Machine{Costs: UnitCosts})
}
