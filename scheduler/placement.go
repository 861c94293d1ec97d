package scheduler

import "fmt"

// Placement says which rank holds a stage.
type Placement uint8

const (
	// Loop deals the stages out to the ranks in rounds: stage s is on rank
	// s mod ranks.
	Loop Placement = iota
	// V goes to the last rank and back: two stages a rank, and the first rank
	// holds the first and the last stage.
	V
	// U goes around once and closes on rank 0, which holds the first and the
	// last of ranks+1 stages; every other rank holds one.
	U
)

var placementNames = [...]string{Loop: "loop", V: "V", U: "U"}

// String returns the placement's name.
func (p Placement) String() string {
	if int(p) >= len(placementNames) {
		return fmt.Sprintf("Placement(%d)", uint8(p))
	}
	return placementNames[p]
}

// Rank returns the rank that holds a stage.
func (p Placement) Rank(stage, ranks int) int {
	if p == V && stage >= ranks {
		return 2*ranks - 1 - stage
	}
	return stage % ranks
}

// Stages returns the number of stages when a rank holds at most this many
// chunks.
func (p Placement) Stages(ranks, chunks int) (int, error) {
	if ranks < 1 || chunks < 1 {
		return 0, fmt.Errorf("ranks %d, chunks %d: each must be at least 1", ranks, chunks)
	}
	if ranks > MaxActions/chunks {
		return 0, fmt.Errorf("ranks %d, chunks %d make more than %d stages", ranks, chunks, MaxActions)
	}
	switch {
	case p == Loop:
		return ranks * chunks, nil
	case p == V && chunks == 2:
		return 2 * ranks, nil
	case p == U && chunks == 2:
		return ranks + 1, nil
	case p == V || p == U:
		return 0, fmt.Errorf("placement %s needs 2 chunks, not %d", p, chunks)
	}
	return 0, fmt.Errorf("unknown placement %s", p)
}

// fits says whether the stages can stand on the ranks.
func (p Placement) fits(stages, ranks int) error {
	switch {
	case p == Loop && stages%ranks != 0:
		return fmt.Errorf("placement loop: %d stages are no multiple of %d ranks", stages, ranks)
	case p == V && stages != 2*ranks:
		return fmt.Errorf("placement V: %d stages are not twice the %d ranks", stages, ranks)
	case p == U && stages != ranks+1:
		return fmt.Errorf("placement U: %d stages are not one more than the %d ranks", stages, ranks)
	case p > U:
		return fmt.Errorf("unknown placement %s", p)
	}
	return nil
}
