package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry"
)

// filePrefix begins the name of an event file; TensorBoard looks for it.
const filePrefix = "events.out.tfevents."

// ErrFolder means that a folder can't be used for event files.
var ErrFolder = errors.New("folder can't be used for event files")

// Writer appends to one event file. It is for one goroutine.
type Writer struct {
	f          folder.File
	path       string
	size       int64 // size of the complete events
	data, text []byte
}

// files numbers the files of this process.
var files atomic.Int64

// Create creates an event file in a folder, and the folder if it does not exist. TensorBoard drops the data of step
// from and later steps in earlier files of the folder.
func Create(dir string, from int, now time.Time) (*Writer, error) {
	fsys, err := openFolder("", dir)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	w, err := create(fsys, from, now)
	if err = errors.Join(err, fsys.Close()); err != nil { // the file stays open
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	return w, nil
}

// openFolder opens the folder for event files, and creates it if it does not exist: dir, or Folder in the run's
// folder if dir is empty. It does not follow a link there.
func openFolder(run, dir string) (fsys folder.FS, err error) {
	if dir != "" {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		return folder.Open(dir)
	}
	in, err := folder.Open(run)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := in.Mkdir(Folder); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return in.Sub(Folder)
}

func create(fsys folder.FS, from int, now time.Time) (*Writer, error) {
	last, _, err := newest(fsys)
	if err != nil {
		return nil, err
	}
	// TensorBoard reads files in the order of their names, so the new name must be the last.
	name := fmt.Sprintf("%s%010d.%s.%d.%d", filePrefix, max(now.Unix(), last+1), hostName(), os.Getpid(), files.Add(1))
	w := &Writer{path: fsys.Path(name)}
	if w.f, err = fsys.Create(name); err != nil {
		return nil, err
	}
	if err = w.write(appendVersion(w.data[:0], now)); err == nil {
		err = w.write(appendStart(w.data[:0], now, from))
	}
	if err == nil {
		err = fsys.SyncDir(".")
	}
	if err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return w, nil
}

// newest returns the latest second in the names of a folder's event files, and their number.
func newest(fsys folder.FS) (last int64, n int, err error) {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filePrefix)
		if !ok {
			continue
		}
		n++
		second, _, _ := strings.Cut(rest, ".")
		if at, err := strconv.ParseInt(second, 10, 64); err == nil && len(second) == 10 {
			last = max(last, at)
		}
	}
	if n >= limitFiles {
		return 0, n, fmt.Errorf("%w: %s has %d event files, the limit; move some away", ErrFolder, fsys.Path("."), n)
	}
	return last, n, nil
}

// hostName returns the host's name as part of a file name.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "host"
	}
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return r
		}
		return '-'
	}, clip(name, 64))
}

// Path returns the path of the file.
func (w *Writer) Path() string { return w.path }

// Start makes TensorBoard drop the data of step from and later steps, in this file and earlier ones: the run
// restarted from an older step.
func (w *Writer) Start(from int, at time.Time) error {
	return w.write(appendStart(w.data[:0], at, from))
}

// Record writes the measured figures of a step. The ideal bubble is not part of a record; negative: it is not known.
func (w *Writer) Record(r telemetry.Record, idealBubblePct float64, at time.Time) error {
	scalars := scalarsOf(r, idealBubblePct)
	if len(scalars) == 0 {
		return nil
	}
	return w.write(appendScalars(w.data[:0], at, r.Step, scalars))
}

// Text writes a text unchanged, such as a sample of a step.
func (w *Writer) Text(tag, text string, step int, at time.Time) error {
	return w.write(appendNote(w.data[:0], at, step, clip(tag, limitTagBytes), asCode(text)))
}

// write appends one event and passes it to the operating system.
func (w *Writer) write(event []byte) error {
	w.data = event
	w.text = appendFrame(w.text[:0], event)
	n, err := w.f.Write(w.text)
	if err != nil {
		// A partial event, as a full disk leaves one, would hide the events after it.
		if n > 0 {
			err = errors.Join(err, w.f.Truncate(w.size))
		}
		return fmt.Errorf("tensorboard: %w", err)
	}
	w.size += int64(n)
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }
