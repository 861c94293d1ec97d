package runlog

import (
	"errors"
	"sync"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/telemetry"
)

// Marks are a run's events.jsonl: what happened to it, for those who look at its curves. Between
// two attempts, and before the folder is open, they wait.
type Marks struct {
	mu      sync.Mutex
	w       *telemetry.MarkWriter // nil: the folder is not open
	waiting []telemetry.Mark
	failed  bool            // one could not be written
	resumed *telemetry.Mark // that the run goes on, until it has done anything; nil: it has
}

// limitMarks is how many marks wait for a run's folder to be open.
const limitMarks = 256

// Add writes what happened after a number of steps. It may wait for the disk. Only the first error counts: the
// run continues without marks.
func (m *Marks) Add(step int64, kind, text string) error {
	return m.add(newMark(step, kind, text))
}

func newMark(step int64, kind, text string) telemetry.Mark {
	return telemetry.Mark{TimeMS: clock.Now().UnixMilli(), Step: int(step), Kind: kind, Text: text}
}

func (m *Marks) add(one telemetry.Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.goesOn(), m.addOne(one))
}

// resume holds the mark that the run goes on: one that finds nothing left to do leaves none.
func (m *Marks) resume(one telemetry.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resumed = &one
}

// did says that the run has done something.
func (m *Marks) did() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.goesOn()
}

// idle reports whether the run has gone on, and done nothing since.
func (m *Marks) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resumed != nil
}

// goesOn writes the mark that was held. mu is held.
func (m *Marks) goesOn() error {
	if m.resumed == nil {
		return nil
	}
	one := *m.resumed
	m.resumed = nil
	return m.addOne(one)
}

func (m *Marks) addOne(one telemetry.Mark) error {
	if m.w == nil {
		if len(m.waiting) < limitMarks {
			m.waiting = append(m.waiting, one)
		}
		return nil
	}
	return m.write(one)
}

// write appends to the file. mu is held.
func (m *Marks) write(one telemetry.Mark) error {
	if m.failed {
		return nil
	}
	err := m.w.Write(one)
	m.failed = err != nil
	return err
}

// open takes the file, and writes what waits for it: that belongs to the step that the run goes on from
// now, at most, so that it is not cut when the run goes on from there once more.
func (m *Marks) open(w *telemetry.MarkWriter, step int64) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w, m.failed = w, false
	for _, one := range m.waiting {
		one.Step = min(one.Step, int(step))
		err = errors.Join(err, m.write(one))
	}
	m.waiting = nil
	return err
}

// Close closes the file. Later marks wait for the next one.
func (m *Marks) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.w == nil {
		return nil
	}
	w := m.w
	m.w = nil
	return w.Close()
}
