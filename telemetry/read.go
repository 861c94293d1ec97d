package telemetry

import "github.com/troupe-ml/troupe/internal/host/folder"

// maxLineBytes is the longest line that is read; a record has about 300 bytes.
const maxLineBytes = 1 << 20

// advice tells a person how to fix an invalid row.
const advice = "fix or remove the row, or move the file away"

// Read returns the records of a metrics.jsonl. It leaves out a truncated last line, which a crash can leave.
func Read(path string) ([]Record, error) { return records.read(path) }

// ReadFrom is Read for a file of an open folder.
func ReadFrom(fsys folder.FS, name string) ([]Record, error) { return records.readFrom(fsys, name) }
