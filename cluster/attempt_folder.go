package cluster

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/wire"
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

// probe makes the file by which workers show that they see the run's folder; nil: they are not
// asked.
func (a *attempt) probe(as plan.Assignment) *folderProbe {
	if as.Folder == nil {
		return nil
	}
	p, err := newFolderProbe(as.Folder)
	if err != nil {
		a.c.log.Warn("can't try whether workers see the run's folder; they send what they save", "run", a.run, "err", err)
		return nil
	}
	return p
}

func (a *attempt) unprobe(p *folderProbe) {
	if p == nil {
		return
	}
	var workers []uuid.UUID
	for _, s := range a.shares {
		workers = append(workers, s.ID)
	}
	if err := p.remove(workers); err != nil {
		a.c.log.Warn("can't remove what tried whether workers see the run's folder", "run", a.run, "err", err)
	}
}

// seesFolder reports whether a worker has shown that it sees the run's folder.
func (a *attempt) seesFolder(p *folderProbe, got answer) bool {
	if p == nil {
		return false
	}
	why := got.blind
	if why == "" {
		if err := p.check(got.from, got.probe); err != nil {
			why = err.Error()
		}
	}
	if why != "" {
		a.c.log.Info("a worker doesn't see the run's folder; it sends what it saves", "run", a.run, "worker", a.name(got.from), "why", why)
		return false
	}
	a.c.log.Info("a worker sees the run's folder; it writes what it saves there itself", "run", a.run, "worker", a.name(got.from))
	return true
}
