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

// isTables reports whether a key waits for the user's own table: the number of chunks, where nobody has given it and no
// table has been read yet. Who reads again what is printed leaves it to the table, too.
func (c *Config) isTables(f *field) bool {
	return f.key == "pipeline.chunks" && c.HasOwnTable() && !c.IsSet(f.key) && c.Pipeline.Chunks == 1
}
