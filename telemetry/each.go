package telemetry

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Each calls use with every record of a metrics.jsonl of a folder, in the order of the file, without keeping the file
// in memory. It stops at the first error of use.
func Each(fsys folder.FS, name string, use func(Record) error) error {
	f, err := fsys.Open(name)
	if err != nil {
		return fmt.Errorf("metrics: %w", folder.Unreadable(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	from, err := folder.Whole(f)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if err := records.scan(from, func(r Record, _ []byte) error { return use(r) }); err != nil {
		return fmt.Errorf("metrics: %s: %w", fsys.Path(name), err)
	}
	return nil
}
