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

// ErrNoRun means that a path is neither the folder of a run nor that of a checkpoint.
var ErrNoRun = errors.New("not the folder of a run or a checkpoint")

// Run holds the data of a run's folder. Missing data is nil.
type Run struct {
	Path       string // as given by the user
	Config     *config.Config
	History    *history.History
	Written    time.Time         // time of the last metrics
	Checkpoint string            // the newest checkpoint with a readable state, or the folder itself
	State      *trainstate.State // state in Checkpoint
	Model      *stages.Config    // model in Checkpoint
	Parameters int64             // number of the model's parameters; 0: not known
	UpTo       int               // last step to use: the step of a checkpoint; -1: all steps
	Notes      []string          // missing and unreadable data
	dir        string            // folder of the metrics; "": none
}

func (r *Run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Name returns run.name, or else the name of the folder.
func (r *Run) Name() string {
	if r.Config != nil {
		return r.Config.Run.Name
	}
	if abs, err := filepath.Abs(r.Path); err == nil {
		return filepath.Base(abs)
	}
	return r.Path
}

// Step returns the last known step.
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

// Read reads the folder of a run or of a checkpoint. For a checkpoint in a run's folder it reads the run's metrics up
// to the checkpoint's step.
func Read(path string) (*Run, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("give the folder of a run or a checkpoint: %w", err)
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
			r.note("%s: the checkpoint is not in a run's folder, so there is no %s", path, rundir.MetricsFile)
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

// has reports whether a folder has an entry of any kind.
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
		r.note("cannot read the configuration: %v", err)
	} else if in.Config == nil {
		r.note("%s is missing", fsys.Path(rundir.ConfigFile))
	}
	r.Config = in.Config
}

func (r *Run) readMetrics(dir string) {
	r.dir = dir
	fsys, err := folder.Open(dir)
	if err != nil {
		r.note("cannot read the metrics: %v", err)
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

// readNewest reads the newest readable checkpoint of a run.
func (r *Run) readNewest(fsys folder.FS) {
	store, err := checkpoint.OpenStore(fsys, ".")
	if err != nil {
		r.note("cannot read the checkpoints: %v", err)
		return
	}
	steps, err := store.Steps()
	if err != nil {
		r.note("cannot read the checkpoints: %v", err)
		return
	}
	for i := len(steps) - 1; i >= 0; i-- {
		sub, err := fsys.Sub(filepath.ToSlash(filepath.Join(checkpoint.StoreName, filepath.Base(store.Path(steps[i])))))
		if errors.Is(err, fs.ErrNotExist) {
			continue // an active run has removed it
		}
		if err != nil {
			r.note("cannot read the checkpoint of step %d: %v", steps[i], err)
			continue
		}
		r.readCheckpoint(sub, store.Path(steps[i]), r.Config)
		_ = sub.Close() // nothing was written
		if r.State != nil {
			return
		}
	}
	if len(steps) == 0 {
		r.note("there is no checkpoint, so the data's content, the kernels and the number of parameters are not known")
	}
}

// readCheckpoint reads the small files of a checkpoint, and its configuration if cfg is nil.
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
