package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/host/device"
)

// kind names a stage's layers. Stages of one kind record the same operations in the same order, chunk by chunk. If layers
// may differ by their position in the model, every stage is its own kind.
func (p *Plan) kind(stage int) string {
	c := p.model.Config
	if !c.Language() || p.cfg.Freezes() || len(c.Full) > 0 || len(c.Experts.Dense) > 0 {
		return fmt.Sprint(stage)
	}
	var k strings.Builder
	fmt.Fprintf(&k, "%d %s", p.grid.TensorSize(stage), device.KindOf(p.cfg, stage))
	for _, chunk := range p.chunks[stage] {
		before := p.model.Symbols()[:chunk.First]
		fmt.Fprintf(&k, " %v %v %d:%s", chunk.Chunk == 0, chunk.Chunk == p.table.NumChunks-1, strings.Count(before, "m"),
			p.model.Symbols()[chunk.First:chunk.Last])
	}
	return k.String()
}

// stagesByKind groups the stages by kind.
func (p *Plan) stagesByKind() [][]int {
	var kinds [][]int
	index := make(map[string]int)
	for stage := range p.table.NumRanks() {
		k := p.kind(stage)
		i, seen := index[k]
		if !seen {
			i = len(kinds)
			index[k], kinds = i, append(kinds, nil)
		}
		kinds[i] = append(kinds[i], stage)
	}
	return kinds
}

// RecordKind is equal for two stages if Record shows the same operations for both, except for their chunk numbers.
func (p *Plan) RecordKind(stage int) string {
	passOf := p.PassOf(stage)
	var variants []string
	seen := make(map[Pass]bool)
	for _, a := range p.table.Ranks[stage] {
		if v := passOf(a); !seen[v] {
			seen[v] = true
			variants = append(variants, fmt.Sprint(v))
		}
	}
	slices.Sort(variants)
	return p.kind(stage) + " " + strings.Join(variants, " ")
}

// manyRanks is the largest grid whose memory FullestBytes computes stage by stage.
const manyRanks = 8

// briefActions is the least number of actions of a rank's row that FullestBytes records, instead of usualActions.
const briefActions = 256

// FullestBytes estimates MemoryBytes for a search that compares many plans. In a grid of more than manyRanks ranks it
// records, of each kind, only the stage with the most outputs in flight, and assigns its memory to all stages of that kind.
func (p *Plan) FullestBytes() ([]int64, error) {
	if p.grid.World() <= manyRanks {
		return p.MemoryBytes()
	}
	bytes := make([]int64, p.table.NumRanks())
	for _, stages := range p.stagesByKind() {
		fullest := slices.MaxFunc(stages, func(a, b int) int { return p.report.PeakInFlight[a] - p.report.PeakInFlight[b] })
		row := p.table.Ranks[fullest]
		most, err := p.dryRun(fullest, row[:min(len(row), p.dryActions(fullest, briefActions))])
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", fullest, err)
		}
		for _, stage := range stages {
			bytes[stage] = most
		}
	}
	return bytes, nil
}
