package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/troupe-ml/troupe/internal/folder"
)

// Names and lines of the files that a run may have beside its metrics.
const (
	eventsFile  = "events.jsonl"
	statsFile   = "stats.jsonl"
	samplesFile = "samples.jsonl"

	recordedBytesMax = 256 << 20
)

type mark struct {
	TimeMS int64  `json:"time_ms"`
	Step   int    `json:"step"`
	Kind   string `json:"kind"`
	Text   string `json:"text"`
}

type stats struct {
	Step     int          `json:"step"`
	MemBytes []int64      `json:"mem_bytes"`
	Layers   []layerStats `json:"layers"`
}

type layerStats struct {
	Name       string   `json:"name"`
	Stage      int      `json:"stage"`
	Params     int64    `json:"params"`
	WeightNorm *float64 `json:"weight_norm"`
	GradNorm   *float64 `json:"grad_norm"`
}

type sample struct {
	Step   int    `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

// readLines reads a file with an object a line, but for a last one that is cut short.
func readLines[T any](fsys folder.FS, name string) ([]T, error) {
	text, err := folder.ReadFile(fsys, name, recordedBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []T
	row := 0
	for line := range bytes.Lines(text) {
		row++
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			if line[len(line)-1] != '\n' {
				break
			}
			return all, fmt.Errorf("%s: row %d: %w", fsys.Path(name), row, err)
		}
		all = append(all, v)
	}
	return all, nil
}
