package scheduler

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// Placement says which rank holds a chunk.
type Placement uint8

const (
	// Loop deals the chunks to the ranks in rounds: chunk c is on rank c mod ranks.
	Loop Placement = iota
	// V goes to the last rank and back. With two chunks on each rank, the first rank holds the
	// first and the last chunk. With more chunks it turns again at each end.
	V
	// U goes around once and ends on rank 0, which holds the first and the last of ranks+1 chunks;
	// every other rank holds one.
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

// Rank returns the rank that holds a chunk.
func (p Placement) Rank(chunk, ranks int) int {
	if p == V && chunk/ranks%2 == 1 { // on the way back
		return ranks - 1 - chunk%ranks
	}
	return chunk % ranks
}

// Chunks returns the number of chunks on all ranks together if a rank holds at most perRank of
// them.
func (p Placement) Chunks(ranks, perRank int) (int, error) {
	if ranks < 1 || perRank < 1 {
		return 0, fmt.Errorf("ranks %d, chunks on each rank %d: both must be at least 1", ranks, perRank)
	}
	if ranks > MaxActions/perRank {
		return 0, fmt.Errorf("%s with %s each: the limit is %d chunks", words.Plural(ranks, "rank"), words.Plural(perRank, "chunk"), MaxActions)
	}
	switch {
	case p == Loop, p == V && perRank > 1:
		return ranks * perRank, nil
	case p == U && perRank == 2:
		return ranks + 1, nil
	case p == V:
		return 0, fmt.Errorf("placement V needs at least 2 chunks on each rank, not %d: choose loop, or use more chunks", perRank)
	case p == U:
		return 0, fmt.Errorf("placement U needs 2 chunks on each rank, not %d", perRank)
	}
	return 0, fmt.Errorf("unknown placement %s", p)
}

// fits checks that the chunks can be placed on the ranks.
func (p Placement) fits(chunks, ranks int) error {
	switch {
	case p == Loop && chunks%ranks != 0:
		return fmt.Errorf("placement loop: %s for %s: the chunks must be a multiple of the ranks", words.Plural(chunks, "chunk"),
			words.Plural(ranks, "rank"))
	case p == V && (chunks%ranks != 0 || chunks < 2*ranks):
		return fmt.Errorf("placement V: %s for %s: the chunks must be a multiple of the ranks, and at least twice the ranks",
			words.Plural(chunks, "chunk"), words.Plural(ranks, "rank"))
	case p == U && chunks != ranks+1:
		return fmt.Errorf("placement U: %s for %s: there must be one chunk more than ranks", words.Plural(chunks, "chunk"),
			words.Plural(ranks, "rank"))
	case p > U:
		return fmt.Errorf("unknown placement %s", p)
	}
	return nil
}
