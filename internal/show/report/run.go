package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// ErrNoRun: a folder has nothing that a run leaves.
var ErrNoRun = errors.New("neither a run's folder nor a checkpoint's")

// Run is what a folder says of its run. What is not there is nil.
type Run struct {
	Path       string // as it was given
	Config     *config.Config
	History    *history.History
	Written    time.Time         // when the metrics were last
	Checkpoint string            // the newest one whose state could be read, or the folder itself
	State      *trainstate.State // of that checkpoint
	Model      *stages.Config    // of that checkpoint
	Parameters int64             // of the model; 0: not known
	UpTo       int               // the last step that counts: of a checkpoint's folder, its own; -1: all
	Notes      []string          // what is missing, or can't be read
	dir        string            // that the metrics are in; "": there is none
}

func (r *Run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Name is what the run calls itself, or else its folder.
func (r *Run) Name() string {
	if r.Config != nil {
		return r.Config.Run.Name
	}
	if abs, err := filepath.Abs(r.Path); err == nil {
		return filepath.Base(abs)
	}
	return r.Path
}

// Step is the last step that is known of.
func (r *Run) Step() int {
	step := 0
	if r.State != nil {
		step = int(r.State.Step)
	}
	if r.History != nil {
		if last, ok := r.History.Last(); ok && (r.UpTo < 0 || last.Step <= r.UpTo) {
			step = max(step, last.Step)
		}
	}
	return step
}

// Read reads the folder of a run, or of a checkpoint. Of a checkpoint in a run's folder the metrics
// are that run's, up to the checkpoint's step.
func Read(path string) (*Run, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("no run can be read, give its folder or a checkpoint's: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: %w: it is a file", path, ErrNoRun)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	r := &Run{Path: path, UpTo: -1}
	dir, err := rundir.RunFolder(path)
	if err != nil {
		return nil, err
	}
	fsys, err := folder.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = fsys.Close() }() // nothing was written
	if has(fsys, rundir.TrainerFile) {
		r.readCheckpoint(fsys, path, nil)
		if filepath.Base(filepath.Dir(abs)) == checkpoint.StoreName {
			r.readMetrics(filepath.Join(filepath.Dir(abs), ".."))
			if r.State != nil {
				r.UpTo = int(r.State.Step)
			}
		} else {
			r.note("%s: a checkpoint outside of its run's folder has no %s", path, rundir.MetricsFile)
		}
		return r, nil
	}
	if !has(fsys, rundir.ConfigFile) && !has(fsys, rundir.MetricsFile) && !has(fsys, checkpoint.StoreName) {
		return nil, fmt.Errorf("%s: %w: it has no %s, %s, %s or %s", path, ErrNoRun, rundir.ConfigFile, rundir.MetricsFile, checkpoint.StoreName,
			rundir.TrainerFile)
	}
	r.readConfig(fsys)
	r.readMetrics(dir)
	r.readNewest(fsys)
	return r, nil
}

// has reports whether a folder has an entry, whatever it is.
func has(fsys folder.FS, name string) bool {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.Name() == name {
			return true
		}
	}
	return false
}

func (r *Run) readConfig(fsys folder.FS) {
	in := rundir.NewReader(fsys, rundir.ReaderOptions{})
	if err := in.ReadConfig(); err != nil {
		r.note("the configuration: %v", err)
	} else if in.Config == nil {
		r.note("%s is missing", fsys.Path(rundir.ConfigFile))
	}
	r.Config = in.Config
}

func (r *Run) readMetrics(dir string) {
	r.dir = dir
	fsys, err := folder.Open(dir)
	if err != nil {
		r.note("the metrics: %v", err)
		return
	}
	defer func() { _ = fsys.Close() }() // nothing was written
	in := rundir.NewReader(fsys, rundir.ReaderOptions{})
	if err := in.ReadMetrics(); err != nil {
		r.note("%v", err)
		return
	}
	if r.History, r.Written = in.History, in.Changed; r.History == nil {
		r.note("%s is missing", fsys.Path(rundir.MetricsFile))
	}
}

// readNewest reads the newest checkpoint of a run of which that can be done.
func (r *Run) readNewest(fsys folder.FS) {
	store, err := checkpoint.OpenStore(fsys, ".")
	if err != nil {
		r.note("the checkpoints: %v", err)
		return
	}
	steps, err := store.Steps()
	if err != nil {
		r.note("the checkpoints: %v", err)
		return
	}
	for i := len(steps) - 1; i >= 0; i-- {
		sub, err := fsys.Sub(filepath.ToSlash(filepath.Join(checkpoint.StoreName, filepath.Base(store.Path(steps[i])))))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a run that goes on has removed it
		}
		if err != nil {
			r.note("the checkpoint of step %d: %v", steps[i], err)
			continue
		}
		r.readCheckpoint(sub, store.Path(steps[i]), r.Config)
		_ = sub.Close() // nothing was written
		if r.State != nil {
			return
		}
	}
	if len(steps) == 0 {
		r.note("there is no checkpoint: the data's content, the kernels and the model's parameters are not known")
	}
}

// readCheckpoint reads the small files of a checkpoint, and its configuration where none is known.
func (r *Run) readCheckpoint(fsys folder.FS, path string, cfg *config.Config) {
	r.Checkpoint = path
	text, err := folder.ReadFile(fsys, rundir.TrainerFile, checkpoint.FileBytesMax)
	var state trainstate.State
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err == nil && state.FormatVersion > trainstate.Version {
		err = rundir.TooNew(state.FormatVersion)
	}
	if err != nil {
		r.note("%s: %v", path, err)
	} else {
		r.State = &state
	}
	if cfg == nil {
		r.readConfig(fsys)
	}
	if text, err = folder.ReadFile(fsys, rundir.ModelFile, checkpoint.FileBytesMax); err != nil {
		r.note("%s: %v", path, err)
		return
	}
	if m, err := stages.ParseHF(text); err != nil {
		r.note("%s: %v", path, err)
	} else {
		r.Model, r.Parameters = &m, m.Parameters()
	}
}
