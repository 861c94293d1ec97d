package config

import (
	"path/filepath"
	"strings"

	"github.com/troupe-ml/troupe/scheduler"
)

// tableExtension is what the names of tables' files end with, in any case of its letters.
const tableExtension = ".csv"

// HasOwnTable reports whether pipeline.schedule is the file of a table, not the name of a schedule.
func (c *Config) HasOwnTable() bool { return hasExtension(c.Pipeline.Schedule, tableExtension) }

func hasExtension(name, extension string) bool {
	return strings.EqualFold(filepath.Ext(name), extension)
}

// TableSpec is the request for a step's table, without the costs that some schedules use. If replicas have different
// numbers of microbatches, it describes the first replica, which has the most.
func (c *Config) TableSpec() scheduler.Spec {
	p, replicas := c.Pipeline, max(1, c.Parallel.Data)
	microbatches := (c.Batch.Sequences/max(1, c.Batch.Microbatch) + replicas - 1) / replicas
	s := scheduler.Spec{Schedule: p.Schedule, Ranks: p.Stages, Chunks: p.Chunks, Microbatches: microbatches,
		MaxInFlight: p.MaxInFlight, DeferWeights: p.DeferWeights}
	// The default, which a printed configuration gives too, asks for nothing that a schedule
	// without groups could not do, nor a replica with fewer microbatches.
	if p.MicrobatchGroupSize != s.DefaultGroup() {
		s.MicrobatchGroupSize = p.MicrobatchGroupSize
	}
	return s
}

// chunksAreTheTables reports whether nobody has said how many chunks a stage has, and a table is not read yet that does. What
// is printed then must leave it to the table, too.
func (c *Config) chunksAreTheTables() bool {
	return c.HasOwnTable() && !c.IsSet("pipeline.chunks") && c.Pipeline.Chunks == 1
}
