package telemetry

import "github.com/troupe-ml/troupe/internal/host/folder"

// Writer appends records to a metrics.jsonl. Only Sync may be called from another goroutine.
type Writer = LineWriter[Record]

var records = lines[Record]{what: "metrics", most: maxLineBytes, step: func(r Record) int { return r.Step }}

// OpenWriter opens a metrics.jsonl of a folder for appending, and creates it if it does not exist. It first removes
// records after step cutToStep, since the run continues from there and will report them again, and a truncated last
// line. A crash leaves the old file or the new one.
func OpenWriter(fsys folder.FS, name string, cutToStep int) (*Writer, error) {
	return records.open(fsys, name, cutToStep)
}
