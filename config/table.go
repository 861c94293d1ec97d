package config

import (
	"path/filepath"
	"strings"

	"github.com/troupe-ml/troupe/scheduler"
)

// tableExtension is the extension of files with tables, in upper or lower case.
const tableExtension = ".csv"

// HasOwnTable reports whether pipeline.schedule is the path of a table, not the name of a schedule.
func (c *Config) HasOwnTable() bool { return hasExtension(c.Pipeline.Schedule, tableExtension) }

func hasExtension(name, extension string) bool {
	return strings.EqualFold(filepath.Ext(name), extension)
}

// TableSpec returns the spec of a step's table, without the costs that some schedules use. If replicas have different
// numbers of microbatches, it is that of the first replica, which has the most.
func (c *Config) TableSpec() scheduler.Spec {
	p, replicas := c.Pipeline, max(1, c.Parallel.Data)
	microbatches := (c.Batch.Sequences/max(1, c.Batch.Microbatch) + replicas - 1) / replicas
	s := scheduler.Spec{Schedule: p.Schedule, Ranks: p.Stages, Chunks: p.Chunks, Microbatches: microbatches,
		MaxInFlight: p.MaxInFlight, DeferWeights: p.DeferWeights, Pairs: c.Parallel.ExpertOverlap && c.Parallel.Expert > 1}
	// A printed configuration gives the default, too. Leave it out, so that it does not fail for a schedule
	// without groups, or for a replica with fewer microbatches.
	if p.MicrobatchGroupSize != s.DefaultGroup() {
		s.MicrobatchGroupSize = p.MicrobatchGroupSize
	}
	return s
}

// isTables reports whether the user's own table decides a key: the number of chunks, if it was not given and the
// table has not been read yet. A printed configuration leaves it to the table, too.
func (c *Config) tableDecides(f *field) bool {
	return f.key == "pipeline.chunks" && c.HasOwnTable() && !c.IsSet(f.key) && c.Pipeline.Chunks == 1
}
