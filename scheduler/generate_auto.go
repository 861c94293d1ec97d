package scheduler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// auto tries every schedule that fits the spec, and greedily simulated tables, with the spec's
// costs. It returns the fastest table within the bound, and of equally fast ones the table that
// holds the fewest outputs.
func (s Spec) auto() (*Table, error) {
	if s.Costs == nil {
		s.Costs = UnitCosts
	}
	var best *Table
	least, lightest := math.Inf(1), 0
	var beyond []string // schedules that exceed the bound
	tables, err := s.candidates()
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		held := slices.Max(peakInFlight(t))
		if s.MaxInFlight > 0 && held > s.MaxInFlight {
			beyond = append(beyond, fmt.Sprintf("%s %d", t.Schedule, held))
			continue
		}
		tl, err := Machine{Costs: s.Costs, Link: s.Link}.Simulate(t)
		if errors.Is(err, ErrCosts) {
			return nil, err
		}
		if err == nil && (tl.Makespan < least || tl.Makespan == least && held < lightest) {
			best, least, lightest = t, tl.Makespan, held
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: no table for %s with %s fits the bound of %s (%s): raise the bound",
			ErrSpec, words.Plural(s.Ranks, "rank"), words.Plural(s.Chunks, "chunk"), words.Plural(s.MaxInFlight, "output"),
			strings.Join(beyond, ", "))
	}
	best.Schedule = s.Schedule
	return best, nil
}

// candidates returns the tables to choose from.
func (s Spec) candidates() ([]*Table, error) {
	var tables []*Table
	for _, k := range kinds() {
		if k.rows == nil || k.placement == U { // placement U has another number of chunks
			continue
		}
		each := s
		each.Schedule = k.name
		if !each.grouped() {
			each.MicrobatchGroupSize = 0
		}
		each, err := each.resolve()
		if err != nil {
			continue
		}
		t, err := each.table(k)
		if err != nil {
			continue
		}
		if s.DeferWeights > 0 && !s.ForwardOnly {
			t.deferWeights(s.DeferWeights)
		}
		tables = append(tables, t)
	}
	if s.ForwardOnly || s.Ranks*s.Chunks*s.Microbatches > maxPlayed {
		return tables, nil
	}
	for _, pl := range []Placement{Loop, V} {
		chunks, err := pl.Chunks(s.Ranks, s.Chunks)
		if err != nil {
			continue
		}
		for _, split := range []bool{false, true} {
			played, err := s.played(pl, chunks, split)
			if err != nil {
				return nil, err
			}
			tables = append(tables, played...)
		}
	}
	return tables, nil
}

// maxPlayed limits the size of greedily simulated tables, in microbatches times chunks: each action
// needs an admission test.
const maxPlayed = 1 << 18

// played returns greedy tables under several bounds and orders of urgency.
func (s Spec) played(pl Placement, chunks int, split bool) ([]*Table, error) {
	all := s.Microbatches * s.Chunks
	bounds := []int{s.Ranks, s.Ranks + s.Chunks, s.Ranks * s.Chunks, 2*s.Ranks - 1, 2 * s.Ranks * s.Chunks, all}
	if s.MaxInFlight > 0 {
		bounds = append(bounds, s.MaxInFlight)
	}
	slices.Sort(bounds)
	var tables []*Table
	for _, bound := range slices.Compact(bounds) {
		if bound < s.Chunks || bound > all || s.MaxInFlight > 0 && bound > s.MaxInFlight {
			continue
		}
		for _, urgency := range urgencies {
			g := greedy{placement: pl, numRanks: s.Ranks, numChunks: chunks, microbatches: s.Microbatches, split: split,
				costs: s.Costs, link: s.Link, urgency: urgency, bound: slices.Repeat([]int{bound}, s.Ranks)}
			rows, err := g.play()
			if err != nil {
				return nil, err
			}
			tables = append(tables, &Table{Schedule: s.Schedule, Placement: pl, NumChunks: chunks, Microbatches: s.Microbatches, Ranks: rows})
		}
	}
	return tables, nil
}

// urgencies rank the actions that are ready on a rank; if two are equal the later chunk goes first.
var urgencies = []func(rank int, a Action) int{
	// Gradients, forwards, weight gradients.
	func(_ int, a Action) int { return [...]int{F: 1, I: 0, B: 0, W: 2}[a.Type] },
	// Forwards first, if they are admitted.
	func(_ int, a Action) int { return [...]int{F: 0, I: 1, B: 1, W: 2}[a.Type] },
	// The earlier microbatch first, weight gradients last.
	func(_ int, a Action) int {
		if a.Type == W {
			return math.MaxInt
		}
		return int(a.Microbatch)
	},
}
