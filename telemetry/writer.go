package telemetry

import "github.com/troupe-ml/troupe/internal/host/folder"

// Writer appends records to a metrics.jsonl. It is for one goroutine, but for Sync.
type Writer = LineWriter[Record]

var records = lines[Record]{what: "metrics", most: maxLineBytes, step: func(r Record) int { return r.Step }}

// OpenWriter opens a metrics.jsonl of a folder for appending, and makes one if there
// is none. Records of steps behind cutToStep are removed first: the run continues
// from there, and will report them again. A last line that is cut short is
// removed too. A crash leaves the old file or the new one.
func OpenWriter(fsys folder.FS, name string, cutToStep int) (*Writer, error) {
	return records.open(fsys, name, cutToStep)
}
