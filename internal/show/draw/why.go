package draw

import (
	"cmp"
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
)

// causeNames are the names of scheduler.Cause, by value.
var causeNames = func() []string {
	names := make([]string, scheduler.Experts+1)
	for c := range names {
		names[c] = scheduler.Cause(c).String()
	}
	return names
}()

// gap is an idle time of a rank.
type gap struct {
	rank int32
	scheduler.Gap
}

// reasons explain the duration of a step.
type reasons struct {
	path     [][]bool // by rank and action: on the critical path
	critical *scheduler.Path
	gaps     []gap
	sums     [][]float64  // ms by rank and cause
	waits    [][3]float64 // rank, rank that it waited for, ms: the longest sums first
}

// analyse finds the critical path of a step and the cause of each gap.
func analyse(s *scheduler.Step) (*reasons, error) {
	why := &reasons{critical: &scheduler.Path{}}
	for _, row := range s.MS {
		why.path, why.sums = append(why.path, make([]bool, len(row))), append(why.sums, make([]float64, len(causeNames)))
	}
	path, err := s.Critical()
	if err != nil {
		return why, err
	}
	why.critical = path
	for _, at := range path.Steps {
		why.path[at.Rank][at.Position] = true
	}
	idle, err := s.Idle()
	if err != nil {
		return why, err
	}
	waited := make(map[[2]int]float64)
	for r, gaps := range idle {
		for _, g := range gaps {
			why.sums[r][g.Cause] += g.Len()
			if g.Cause == scheduler.Waits || g.Cause == scheduler.Credit {
				waited[[2]int{r, g.From}] += g.Len()
			}
			why.gaps = append(why.gaps, gap{int32(r), g})
		}
	}
	why.few(s.StepMS)
	for pair, ms := range waited {
		why.waits = append(why.waits, [3]float64{float64(pair[0]), float64(pair[1]), ms})
	}
	slices.SortFunc(why.waits, func(a, b [3]float64) int {
		return cmp.Or(cmp.Compare(b[2], a[2]), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	why.waits = why.waits[:min(len(why.waits), maxWaits)]
	return why, nil
}

// few drops the shortest gaps if there are more than maxGaps.
func (why *reasons) few(stepMS float64) {
	for least := stepMS / 20_000; ; least = 2*least + 1e-6 {
		why.gaps = slices.DeleteFunc(why.gaps, func(g gap) bool { return g.Len() < least })
		if len(why.gaps) <= maxGaps {
			return
		}
	}
}
