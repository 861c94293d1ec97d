package scheduler

import "fmt"

// Forwards makes a forward-only table for ranks with perRank chunks each in a placement. It is the
// table for validation beside any training table. Chunks or microbatches that don't fit are
// ErrSpec.
func Forwards(p Placement, ranks, perRank, microbatches int) (*Table, error) {
	s := Spec{Ranks: ranks, Chunks: perRank, Microbatches: microbatches, ForwardOnly: true}
	switch {
	case p == V && perRank > 2:
		return s.wave()
	case p == V:
		s.Schedule = ZBV
	case p == U:
		s.Schedule = UShape
	}
	return Generate(s)
}

// wave simulates the forwards over a V of more than two chunks for each rank. A rank takes the last
// chunk that is ready, so that microbatches leave the pipeline as early as possible.
func (s Spec) wave() (*Table, error) {
	chunks, err := V.Chunks(s.Ranks, s.Chunks)
	if err == nil && (s.Microbatches < 1 || chunks > MaxActions/s.Microbatches) {
		err = fmt.Errorf("%d microbatches on %d chunks: want at least 1, and at most %d actions", s.Microbatches, chunks, MaxActions)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	g := greedy{placement: V, numRanks: s.Ranks, numChunks: chunks, microbatches: s.Microbatches, forwardOnly: true,
		costs: UnitCosts, bound: make([]int, s.Ranks), urgency: func(int, Action) int { return 0 }}
	rows, err := g.play()
	return &Table{Placement: V, NumChunks: chunks, Microbatches: s.Microbatches, ForwardOnly: true, Ranks: rows}, err
}
