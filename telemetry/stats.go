package telemetry

import (
	"encoding/json"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Stats holds a step's memory and layer norms: a line of stats.jsonl, written every run.stats_every steps.
type Stats struct {
	Step int
	// MemBytes is the peak tensor memory of each rank so far; nil: not known.
	MemBytes []int64
	Layers   []LayerStats // in the model's order
}

// LayerStats describes a layer of the model at a step.
type LayerStats struct {
	Name   string // "embed", "3", "head", or the model's own name
	Stage  int    // the pipeline stage that computes it
	Params int64
	// WeightNorm is the norm of its weights before the step's update, and GradNorm that of their gradients before
	// clipping. A tied weight counts with the layer that it is named after. nil: not known, or the layer is not
	// trained. NaN and infinite norms are null in the file.
	WeightNorm, GradNorm *float64
}

// statsLine is a Stats in the file's form.
type statsLine struct {
	Step     *int        `json:"step"`
	MemBytes []int64     `json:"mem_bytes,omitempty"`
	Layers   []layerLine `json:"layers"`
}

type layerLine struct {
	Name       string `json:"name"`
	Stage      int    `json:"stage"`
	Params     int64  `json:"params"`
	WeightNorm figure `json:"weight_norm,omitzero"`
	GradNorm   figure `json:"grad_norm,omitzero"`
}

// maxStatsBytes is the longest line of a stats.jsonl: that of 64 Ki layers with long names.
const maxStatsBytes = 16 << 20

var stats = lines[Stats]{what: "stats", most: maxStatsBytes, step: func(s Stats) int { return s.Step }}

// MarshalJSON writes a line of stats.jsonl.
func (s Stats) MarshalJSON() ([]byte, error) {
	l := statsLine{Step: &s.Step, MemBytes: s.MemBytes, Layers: make([]layerLine, len(s.Layers))}
	for i, a := range s.Layers {
		l.Layers[i] = layerLine{a.Name, a.Stage, a.Params, figure{a.WeightNorm}, figure{a.GradNorm}}
	}
	return json.Marshal(l)
}

// UnmarshalJSON reads a line that MarshalJSON wrote. It ignores unknown keys.
func (s *Stats) UnmarshalJSON(data []byte) error {
	var l statsLine
	if err := json.Unmarshal(data, &l); err != nil {
		return err
	}
	if err := checkStep(l.Step); err != nil {
		return err
	}
	*s = Stats{Step: *l.Step, MemBytes: l.MemBytes}
	for _, a := range l.Layers {
		s.Layers = append(s.Layers, LayerStats{a.Name, a.Stage, a.Params, a.WeightNorm.v, a.GradNorm.v})
	}
	return nil
}

// StatsWriter appends to a stats.jsonl.
type StatsWriter = LineWriter[Stats]

// OpenStats opens a stats.jsonl of a folder for appending, as OpenMarks does for an events.jsonl.
func OpenStats(fsys folder.FS, name string, cutToStep int) (*StatsWriter, error) {
	return stats.openLater(fsys, name, cutToStep)
}

// ReadStats returns the lines of a stats.jsonl, except a truncated last line.
func ReadStats(path string) ([]Stats, error) { return stats.read(path) }

// ReadStatsFrom is ReadStats for a file of an open folder.
func ReadStatsFrom(fsys folder.FS, name string) ([]Stats, error) { return stats.readFrom(fsys, name) }
