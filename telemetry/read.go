package telemetry

import "github.com/troupe-ml/troupe/internal/host/folder"

// maxLineBytes is the longest line that is read; a record has some 300 bytes.
const maxLineBytes = 1 << 20

// advice is what a person can do about a row that is none of the file's.
const advice = "correct or remove that row, or move the file away"

// Read returns the records of a metrics.jsonl. A last line that is cut short, as
// a crash leaves it, is not one of them.
func Read(path string) ([]Record, error) { return records.read(path) }

// ReadFrom is Read for a file of an open folder.
func ReadFrom(fsys folder.FS, name string) ([]Record, error) { return records.readFrom(fsys, name) }
