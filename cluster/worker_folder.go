package cluster

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
)

// folderView maps a path to the worker's view of it; tests replace it.
var folderView = func(path string) string { return path }

// isProbeName reports whether a name is that of a probe, so that a worker creates no other files.
func isProbeName(name string) bool {
	random, ok := strings.CutPrefix(name, rundir.ProbePrefix)
	b, err := hex.DecodeString(random)
	return ok && err == nil && len(b) == sightBytes
}

// answerProbe looks for a probe in the run's folder and writes the answer next to it. It returns the open folder.
func answerProbe(m *wire.Assign, self uuid.UUID) (at *folder.Folder, answer []byte, err error) {
	if !filepath.IsAbs(m.GetFolder()) || !isProbeName(m.GetProbe()) || len(m.GetProbeContent()) != sightBytes {
		return nil, nil, fmt.Errorf("invalid probe %.100q of %d bytes in folder %.100q", m.GetProbe(), len(m.GetProbeContent()), m.GetFolder())
	}
	if at, err = folder.Open(folderView(m.GetFolder())); err != nil {
		return nil, nil, err
	}
	content, err := folder.ReadFile(at, m.GetProbe(), sightBytes)
	if err == nil && !bytes.Equal(content, m.GetProbeContent()) {
		err = fmt.Errorf("%s is not the file that the coordinator wrote", at.Path(m.GetProbe()))
	}
	answer = randomBytes()
	if err == nil {
		err = folder.WriteSynced(at, answerName(m.GetProbe(), self), func(w io.Writer) error {
			_, err := w.Write(answer)
			return err
		})
	}
	if err != nil {
		return nil, nil, errors.Join(err, at.Close())
	}
	return at, answer, nil
}

// sightTime is how long a worker may look for a run's folder: a file system that hangs must not
// keep it from computing.
const sightTime = 5 * time.Second

// see checks whether this worker sees the run's folder, and opens it.
func (p *part) see(m *wire.Assign, answer *wire.Assigned) {
	if m.GetFolder() == "" {
		return
	}
	type result struct {
		at     *folder.Folder
		answer []byte
		err    error
	}
	came := make(chan result)
	late := time.NewTimer(sightTime)
	defer late.Stop()
	gone := make(chan struct{})
	defer close(gone)
	go func() { // ends with the file system's answer
		var r result
		r.at, r.answer, r.err = answerProbe(m, p.w.id)
		select {
		case came <- r:
		case <-gone:
			if r.at != nil {
				_ = r.at.Close()
			}
		}
	}()
	select {
	case r := <-came:
		p.folder, answer.ProbeAnswer = r.at, r.answer
		if r.err != nil {
			answer.ProbeError = r.err.Error()
		}
	case <-late.C:
		answer.ProbeError = fmt.Sprintf("%s did not answer within %v", m.GetFolder(), sightTime)
	}
}

// writeOwn writes into a checkpoint; a test replaces it with one that stops in the middle.
var writeOwn = checkpoint.WriteOwn

// writeOwn writes a stage's part of the coordinator's checkpoint to the folder that both see. The
// name of the checkpoint's folder contains the attempt, so a worker can't write into a newer attempt's.
func (p *part) writeOwn(ctx context.Context, step int64, places []trainstate.Place, saved []stages.Saved) ([]uint32, error) {
	own := make([]checkpoint.Own, len(places))
	for i, at := range places {
		own[i] = checkpoint.Own{File: at.File, Offset: at.Offset, Data: saved[i].Bytes()}
	}
	return writeOwn(ctx, p.folder, ".", int(step), p.id.String(), own)
}
