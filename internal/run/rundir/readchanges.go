package rundir

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// ReadChanges reads the journal of requested changes.
func (r *Reader) ReadChanges() ([]event.Change, error) {
	text, err := folder.ReadFile(r.FS, ChangesFile, checkpoint.FileBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := parseChanges(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.FS.Path(ChangesFile), err)
	}
	return all, nil
}

// ReadModel returns the number of parameters of the model in the newest checkpoint that Refresh found; 0: not known.
func (r *Reader) ReadModel() int64 {
	n := len(r.Checkpoints)
	if n == 0 {
		return 0
	}
	sub, err := r.FS.Sub(fmt.Sprintf("%s/step-%08d", checkpoint.StoreName, r.Checkpoints[n-1]))
	if err != nil {
		return 0 // an active run has removed it
	}
	defer func() { _ = sub.Close() }() // nothing was written
	text, err := folder.ReadFile(sub, ModelFile, checkpoint.FileBytesMax)
	if err != nil {
		return 0
	}
	m, err := stages.ParseHF(text)
	if err != nil {
		return 0 // a model of other layers
	}
	return m.Parameters()
}
