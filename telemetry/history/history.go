package history

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry"
)

// History holds the rows of a metrics.jsonl, or the records passed to Add. Its methods may be called from several
// goroutines; while Refresh reads, the others use the rows read before.
type History struct {
	fsys  folder.FS // nil: there is no file
	name  string
	block int // bytes
	most  int // limit of rows without a file
	every int // steps between rows without a file

	reading sync.Mutex  // guards the two below
	read    place       // position in the file
	info    fs.FileInfo // of the file at the last read; nil: not read yet

	mu   sync.RWMutex // guards the three below
	rows *table
	last *telemetry.Record // nil: there is no row
	left float64           // seconds of the records after the last row that have no row
}

// Open reads a file of an open folder, which the caller must keep open. It ignores a truncated last line, which a
// crash can leave; any other invalid line is an error.
func Open(fsys folder.FS, name string) (*History, error) {
	return open(fsys, name, blockBytes)
}

func open(fsys folder.FS, name string, blockBytes int) (*History, error) {
	h := &History{fsys: fsys, name: name, block: blockBytes, rows: newTable()}
	if err := h.Refresh(); err != nil {
		return nil, err
	}
	return h, nil
}

// New returns a History without a file, for Add. To keep at most that many rows it keeps every second step, then
// every fourth, and so on, and all steps with a sparse metric.
func New(most int) *History { return &History{most: most, every: 1, rows: newTable()} }

// Add appends a record to a History without a file. A record of a known step replaces that row and all rows after it.
func (h *History) Add(record telemetry.Record) error {
	var r row
	r.take(&record)
	one := newTable()
	if err := one.add(&r); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = &record
	if record.Step%h.every != 0 && !one.sparse() {
		h.rows.cut(record.Step)
		if record.StepMS != nil && *record.StepMS > 0 {
			h.left += *record.StepMS / 1000
		}
		return nil
	}
	err := h.rows.join(one) // the row may be added although it has too many metrics
	if n := len(h.rows.seconds); n > 0 {
		h.rows.seconds[n-1] += h.left
		h.left = 0
	}
	if len(h.rows.steps) > h.most {
		h.every *= 2
		h.rows = h.rows.thinned(h.every)
	}
	return err
}

// Refresh reads the lines that were appended since the last read. It reads the whole file again if it was replaced,
// is shorter, or has other text in place of the last row, as after a restart from an older step. After an error the
// History is unchanged, and the next Refresh tries again. Without a file it does nothing.
func (h *History) Refresh() error {
	if h.fsys == nil {
		return nil
	}
	h.reading.Lock()
	defer h.reading.Unlock()
	f, err := h.fsys.Open(h.name)
	if err != nil {
		return fmt.Errorf("metrics: %w", folder.Unreadable(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("metrics: %w", folder.Unreadable(err))
	}
	if err := h.readFrom(f, info); err != nil {
		return fmt.Errorf("metrics: %s: %w", h.fsys.Path(h.name), err)
	}
	return nil
}

func (h *History) readFrom(f folder.File, info fs.FileInfo) error {
	from := h.read
	if h.info == nil || !os.SameFile(h.info, info) || info.Size() < from.offset {
		from = place{}
	} else if info.Size() == h.info.Size() && info.ModTime().Equal(h.info.ModTime()) {
		return nil
	} else if goesOn, err := h.goesOn(f, info.Size()); err != nil {
		return err
	} else if !goesOn {
		from = place{}
	} else if from.open() && info.Size() > from.offset { // the last row got its line break
		from.last = append(from.last[:len(from.last):len(from.last)], '\n')
		from.offset++
	}
	added, to, err := load(f, from, info.Size(), h.block)
	if err != nil {
		return err
	}
	var last *telemetry.Record
	if len(added.steps) > 0 {
		last = new(telemetry.Record)
		if err := last.UnmarshalJSON(to.last); err != nil {
			return telemetry.RowError(to.rows, err)
		}
	}
	if err := h.commit(added, last, from.offset == 0); err != nil {
		return err
	}
	h.read, h.info = to, info
	return nil
}

// goesOn reports whether the file still has the last row at its place, followed by a new row.
func (h *History) goesOn(f folder.File, size int64) (bool, error) {
	last := h.read.last
	there := make([]byte, min(int64(len(last)+1), size-h.read.offset+int64(len(last))))
	if n, err := f.ReadAt(there, h.read.offset-int64(len(last))); n < len(there) {
		return false, folder.Unreadable(err)
	}
	more, same := bytes.CutPrefix(there, last)
	return same && (!h.read.open() || len(more) == 0 || more[0] == '\n'), nil
}

// commit adds rows after the present ones, or replaces these.
func (h *History) commit(added *table, last *telemetry.Record, replace bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if replace {
		h.rows, h.last = added, last
		return nil
	}
	if err := h.rows.join(added); err != nil {
		return err
	}
	if last != nil {
		h.last = last
	}
	return nil
}

// Len is the number of rows.
func (h *History) Len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.rows.steps)
}

// Last returns the record of the last row; false: there are no rows. Callers must not change its values, which are
// shared.
func (h *History) Last() (telemetry.Record, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.last == nil {
		return telemetry.Record{}, false
	}
	return *h.last, true
}

// Skipped returns the steps whose update was not applied.
func (h *History) Skipped() []int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	steps := make([]int, len(h.rows.skipped))
	for i, row := range h.rows.skipped {
		steps[i] = h.rows.steps[row]
	}
	return steps
}

// Prefixes of the names of the model's own metrics, and of the losses of validation sets.
const (
	Metrics    = "metrics."
	ValMetrics = "val_metrics."
	ValLosses  = "val_losses."
)

// groups are the prefixes of values with names of their own, as in a record.
var groups = [...]string{Metrics, ValMetrics, ValLosses}

// Names returns the names of all series: the telemetry.Figures that have values, in their order, then the model's own
// metrics of steps and of validations, and the losses of validation sets, each with its prefix.
func (h *History) Names() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var names []string
	for k := range telemetry.Figures {
		if len(h.rows.figures[k].values) > 0 {
			names = append(names, telemetry.Figures[k].Name)
		}
	}
	for k, prefix := range groups {
		for _, name := range slices.Sorted(maps.Keys(h.rows.metrics[k])) {
			if len(h.rows.metrics[k][name].values) > 0 {
				names = append(names, prefix+name)
			}
		}
	}
	return names
}

// Figures returns a whole series: the steps that have it, and its values as in the file. null is NaN; steps without
// the metric are left out.
func (h *History) Figures(name string) (steps []int, values []float64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.rows.named(name)
	if s == nil {
		return nil, nil
	}
	steps = make([]int, len(s.values))
	for i := range steps {
		steps[i] = h.rows.steps[s.row(i)]
	}
	return steps, slices.Clone(s.values)
}

// named finds a series; nil: there is none.
func (t *table) named(name string) *series {
	if k, ok := keys[name]; ok && k < limitFigures {
		return &t.figures[k]
	}
	for k, prefix := range groups {
		if own, ok := bytes.CutPrefix([]byte(name), []byte(prefix)); ok {
			return t.metrics[k][string(own)]
		}
	}
	return nil
}

// Span returns the range of the rows on an axis; false: there are no rows.
func (h *History) Span(by Axis) (from, to float64, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n := len(h.rows.steps)
	if n == 0 {
		return math.NaN(), math.NaN(), false
	}
	return h.rows.x(by, 0), h.rows.x(by, n-1), true
}
