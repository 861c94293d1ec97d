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

// History is a metrics.jsonl, as far as it has been read, or what Add was given. Its methods may be called from several
// goroutines; while Refresh reads, the others answer from what was there.
type History struct {
	fsys  folder.FS // nil: of no file
	name  string
	block int // bytes
	most  int // rows, where there is no file
	every int // steps between those rows

	reading sync.Mutex  // guards the two below
	read    place       // of the file
	info    fs.FileInfo // of the file that was read; nil: none was

	mu   sync.RWMutex // guards the three below
	rows *table
	last *telemetry.Record // nil: there is no row
	left float64           // seconds of the records after the last row, which were left out
}

// Open reads a file of an open folder, which stays its caller's. A last line that is cut short, as
// a crash leaves it, is not one of the rows; any other line that is no record is an error.
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

// New makes a History of no file, for Add. So that it has at most so many rows, it keeps every second
// step, or every fourth and so on, beside those with a figure that few steps have.
func New(most int) *History { return &History{most: most, every: 1, rows: newTable()} }

// Add appends a record to a History of no file. One of a step that is there takes the place of that
// one and of all after it.
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
	err := h.rows.join(one) // the row may be there although a metric of it is one too many
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

// Refresh reads what was appended since, or all of it again if the file is another, is shorter than
// it was, or has other text where the last row was: a run that goes back to an older step replaces
// it. With an error everything stays as it was, and the next Refresh tries again. Of no file it does nothing.
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
	} else if from.open() && info.Size() > from.offset { // its end has come
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

// goesOn reports whether the file still has the last row where it was, and begins another one
// behind it.
func (h *History) goesOn(f folder.File, size int64) (bool, error) {
	last := h.read.last
	there := make([]byte, min(int64(len(last)+1), size-h.read.offset+int64(len(last))))
	if n, err := f.ReadAt(there, h.read.offset-int64(len(last))); n < len(there) {
		return false, folder.Unreadable(err)
	}
	more, same := bytes.CutPrefix(there, last)
	return same && (!h.read.open() || len(more) == 0 || more[0] == '\n'), nil
}

// commit takes rows over, behind those that are there or in their place.
func (h *History) commit(added *table, last *telemetry.Record, anew bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if anew {
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

// Last is the record of the last row; false: there is none. Its figures are shared: they are not
// to be changed.
func (h *History) Last() (telemetry.Record, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.last == nil {
		return telemetry.Record{}, false
	}
	return *h.last, true
}

// Skipped are the steps whose update was not applied.
func (h *History) Skipped() []int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	steps := make([]int, len(h.rows.skipped))
	for i, row := range h.rows.skipped {
		steps[i] = h.rows.steps[row]
	}
	return steps
}

// Prefixes of the names of metrics.
const (
	Metrics    = "metrics."
	ValMetrics = "val_metrics."
)

// Names are the series that there are: those of telemetry.Figures that the file has, in their order;
// then metrics and val_metrics, each with its prefix.
func (h *History) Names() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var names []string
	for k := range telemetry.Figures {
		if len(h.rows.figures[k].values) > 0 {
			names = append(names, telemetry.Figures[k].Name)
		}
	}
	for k, prefix := range []string{Metrics, ValMetrics} {
		for _, name := range slices.Sorted(maps.Keys(h.rows.metrics[k])) {
			if len(h.rows.metrics[k][name].values) > 0 {
				names = append(names, prefix+name)
			}
		}
	}
	return names
}

// Figures are a series whole: the steps that have it and its values, as they are in the file. What
// is null there is NaN; a step without it is not in the list.
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
	for k, prefix := range []string{Metrics, ValMetrics} {
		if own, ok := bytes.CutPrefix([]byte(name), []byte(prefix)); ok {
			return t.metrics[k][string(own)]
		}
	}
	return nil
}

// Span is from where to where the rows lie on an axis; false: there are none.
func (h *History) Span(by Axis) (from, to float64, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n := len(h.rows.steps)
	if n == 0 {
		return math.NaN(), math.NaN(), false
	}
	return h.rows.x(by, 0), h.rows.x(by, n-1), true
}
