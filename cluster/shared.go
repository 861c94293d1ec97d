package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
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

// Whether a worker sees a run's folder is tried, in both directions: the coordinator makes a
// file of a random name and content, the worker reads it and makes another one beside it, and
// the coordinator reads that. Another folder of the same path, or one that the worker may not
// write to, does not count.

// sightBytes is the length of a probe's content and of its answer's, and half that of what is
// random in its name.
const sightBytes = 16

// folderProbe is a file by which workers show that they see a run's folder.
type folderProbe struct {
	at      folder.FS
	path    string // of the folder, for workers
	name    string
	content []byte
}

func newFolderProbe(at folder.FS) (*folderProbe, error) {
	path, err := filepath.Abs(at.Path("."))
	if err != nil {
		return nil, err
	}
	p := &folderProbe{at: at, path: path, name: rundir.ProbePrefix + hex.EncodeToString(randomBytes()), content: randomBytes()}
	return p, folder.WriteSynced(at, p.name, func(w io.Writer) error {
		_, err := w.Write(p.content)
		return err
	})
}

func randomBytes() []byte {
	b := make([]byte, sightBytes)
	_, _ = rand.Read(b) // which never fails
	return b
}

// assign tells a worker of the probe.
func (p *folderProbe) assign(m *wire.Assign) {
	if p != nil {
		m.Folder, m.Probe, m.ProbeContent = p.path, p.name, p.content
	}
}

// check looks for a worker's answer beside the probe.
func (p *folderProbe) check(worker uuid.UUID, answer []byte) error {
	name := answerName(p.name, worker)
	if len(answer) != sightBytes {
		return fmt.Errorf("an answer of %d bytes", len(answer))
	}
	got, err := folder.ReadFile(p.at, name, sightBytes)
	if err != nil {
		return fmt.Errorf("the worker says that it has written to the folder: %w", err)
	}
	if !bytes.Equal(got, answer) {
		return fmt.Errorf("the worker says that it has written %x to %s, which holds %x", answer, p.at.Path(name), got)
	}
	return nil
}

// remove takes the probe and its answers away.
func (p *folderProbe) remove(workers []uuid.UUID) error {
	var errs []error
	for _, w := range workers {
		errs = append(errs, p.at.RemoveAll(answerName(p.name, w)))
	}
	return errors.Join(append(errs, p.at.RemoveAll(p.name))...)
}

// answerName is the file with which a worker answers a probe.
func answerName(probe string, worker uuid.UUID) string { return probe + "-" + worker.String() }

// isProbeName keeps a worker from making files of other names.
func isProbeName(name string) bool {
	random, ok := strings.CutPrefix(name, rundir.ProbePrefix)
	b, err := hex.DecodeString(random)
	return ok && err == nil && len(b) == sightBytes
}

// folderView is a worker's view of paths; tests have others.
var folderView = func(path string) string { return path }

// answerProbe looks for a probe, and answers it where it is there. The folder is then open.
func answerProbe(m *wire.Assign, self uuid.UUID) (at *folder.Folder, answer []byte, err error) {
	if !filepath.IsAbs(m.GetFolder()) || !isProbeName(m.GetProbe()) || len(m.GetProbeContent()) != sightBytes {
		return nil, nil, fmt.Errorf("a probe %.100q of %d bytes in %.100q", m.GetProbe(), len(m.GetProbeContent()), m.GetFolder())
	}
	if at, err = folder.Open(folderView(m.GetFolder())); err != nil {
		return nil, nil, err
	}
	content, err := folder.ReadFile(at, m.GetProbe(), sightBytes)
	if err == nil && !bytes.Equal(content, m.GetProbeContent()) {
		err = fmt.Errorf("%s is not the file that the coordinator has written", at.Path(m.GetProbe()))
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

// see looks whether this worker sees the run's folder, and opens it.
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

// writeOwn writes into a checkpoint; tests have one that stops in the middle.
var writeOwn = checkpoint.WriteOwn

// writeOwn writes a stage's part of the coordinator's checkpoint to the folder that both see.
// The attempt is in the name of the checkpoint's folder: that of a newer one is out of reach.
func (p *part) writeOwn(ctx context.Context, step int64, places []trainstate.Place, saved []stages.Saved) ([]uint32, error) {
	own := make([]checkpoint.Own, len(places))
	for i, at := range places {
		own[i] = checkpoint.Own{File: at.File, Offset: at.Offset, Data: saved[i].Bytes()}
	}
	return writeOwn(ctx, p.folder, ".", int(step), p.id.String(), own)
}
