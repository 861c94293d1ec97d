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

// The coordinator probes in both directions whether a worker sees a run's folder. It writes a file
// with a random name and random content. The worker reads it and writes an answer next to it, which
// the coordinator reads. So neither another folder at the same path nor a read-only one passes.

// sightBytes is the length of a probe's content, of its answer, and of the random bytes in its
// name, which has them in hexadecimal.
const sightBytes = 16

// folderProbe is a file through which workers show that they see a run's folder.
type folderProbe struct {
	at      folder.FS
	path    string // the folder's absolute path, for workers
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
	_, _ = rand.Read(b) // it never fails
	return b
}

// assign adds the probe to a worker's assignment.
func (p *folderProbe) assign(m *wire.Assign) {
	if p != nil {
		m.Folder, m.Probe, m.ProbeContent = p.path, p.name, p.content
	}
}

// check reads a worker's answer next to the probe and compares it.
func (p *folderProbe) check(worker uuid.UUID, answer []byte) error {
	name := answerName(p.name, worker)
	if len(answer) != sightBytes {
		return fmt.Errorf("its answer has %d bytes, not %d", len(answer), sightBytes)
	}
	got, err := folder.ReadFile(p.at, name, sightBytes)
	if err != nil {
		return fmt.Errorf("the worker reports an answer, which is not in the folder: %w", err)
	}
	if !bytes.Equal(got, answer) {
		return fmt.Errorf("the worker reports that it wrote %x to %s, but the file has %x", answer, p.at.Path(name), got)
	}
	return nil
}

// remove removes the probe and its answers.
func (p *folderProbe) remove(workers []uuid.UUID) error {
	var errs []error
	for _, w := range workers {
		errs = append(errs, p.at.RemoveAll(answerName(p.name, w)))
	}
	return errors.Join(append(errs, p.at.RemoveAll(p.name))...)
}

// answerName returns the name of the file with a worker's answer.
func answerName(probe string, worker uuid.UUID) string { return probe + "-" + worker.String() }

// probe writes the probe into the run's folder. nil: workers don't look for the folder, and send
// their states.
func (a *attempt) probe(as plan.Assignment) *folderProbe {
	if as.Folder == nil {
		return nil
	}
	p, err := newFolderProbe(as.Folder)
	if err != nil {
		a.c.log.Warn("can't probe the run's folder; workers send their states", "run", a.run, "err", err)
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
		a.c.log.Warn("can't remove the probe files from the run's folder", "run", a.run, "err", err)
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
		a.c.log.Info("worker doesn't see the run's folder; it sends its state", "run", a.run, "worker", a.name(got.from), "why", why)
		return false
	}
	a.c.log.Info("worker sees the run's folder; it writes its own checkpoint files", "run", a.run, "worker", a.name(got.from))
	return true
}
