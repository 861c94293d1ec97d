package plan

import (
	"fmt"
	"io"
	"os"

	"github.com/troupe-ml/troupe/scheduler"
)

// ReadTable reads a table from a CSV file: see scheduler.ReadCSV.
func ReadTable(path string) (*scheduler.Table, error) {
	text, err := tableText(path)
	if err != nil {
		return nil, err
	}
	return scheduler.ReadCSV(path, string(text))
}

func tableText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	// One byte over the limit is enough for ReadCSV to reject the file.
	text, err := io.ReadAll(io.LimitReader(f, scheduler.MaxTableBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return text, nil
}
