package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Dir is the folder of a run, locked.
type Dir struct {
	FS       checkpoint.FS // the folder
	Store    *checkpoint.Store
	Config   []byte   // its config.toml; nil: there is none
	Warnings []string // what a person should know of what was found
	Begun    bool     // Begin has changed something

	path   string
	made   []string // the folders that Open has made, the innermost first
	lock   *checkpoint.Lock
	aside  []aside // to be renamed when the run starts
	byName bool    // the user named the step that it resumes from
	noBest bool    // no checkpoint is the best: run.best = "none"

	changes []event.Change // in the journal
}

// View wraps a run's folder. Tests replace it.
var View = func(f checkpoint.FS) checkpoint.FS { return f }

// Open locks a run's folder and checks that this run may write to it.
func Open(cfg *config.Config, fresh bool) (*Dir, error) {
	d := &Dir{path: cfg.Run.Out, noBest: cfg.Run.Best == config.BestNone}
	if err := d.admissible(cfg, fresh); err != nil {
		return nil, err
	}
	d.made = missing(d.path)
	var err error
	if d.lock, err = checkpoint.LockDir(d.path); err != nil {
		return nil, err
	}
	d.FS = View(d.lock.FS())
	// Check again: another run may have used the folder before the lock.
	if err = d.admissibleIn(cfg, fresh, d.FS); err == nil {
		d.Store, err = checkpoint.OpenStore(d.FS, ".")
	}
	if err == nil {
		err = d.readChanges()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// missing returns the folders of a path that do not exist, the innermost first.
func missing(path string) (dirs []string) {
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) || len(dirs) > 0 && dir == dirs[len(dirs)-1] {
			return dirs
		}
		dirs = append(dirs, dir)
	}
}

// admissible rejects a folder with anything else than this run.
func (d *Dir) admissible(cfg *config.Config, fresh bool) error {
	fsys, err := checkpoint.OpenFS(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cfg.Errorf("run.out", "%w %s: %w", ErrFolder, d.path, err)
	}
	return errors.Join(d.admissibleIn(cfg, fresh, View(fsys)), fsys.Close())
}

func (d *Dir) admissibleIn(cfg *config.Config, fresh bool, fsys checkpoint.FS) error {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return cfg.Errorf("run.out", "%w %s: %w", ErrFolder, d.path, folder.Unreadable(err))
	}
	locked := false // a run has locked the folder, now or before
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if err := d.ownKind(e); err != nil {
			return cfg.Errorf("run.out", "%w", err)
		}
		switch {
		case e.Name() == checkpoint.LockName:
			locked = true
		case e.Name() == SocketFile: // of a process that has ended
		case e.Name() == TokenDir: // a stream is tokenized before the run starts
		case !strings.HasPrefix(e.Name(), folder.TmpPrefix):
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	if fresh {
		return cfg.Errorf("run.out",
			"%w %s is not empty (%s), but --fresh requires an empty folder; choose another run.out, or move the old run away",
			ErrFolder, d.path, strings.Join(names[:min(3, len(names))], ", "))
	}
	text, err := folder.ReadFile(fsys, ConfigFile, checkpoint.FileBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return cfg.Errorf("run.out", "%w %s has %s but no %s, so it is not the folder of a run; choose another run.out", ErrFolder, d.path,
			names[0],
			ConfigFile)
	}
	if err != nil {
		return cfg.Errorf("run.out", "%w: %w", ErrFolder, err)
	}
	if !locked {
		return cfg.Errorf("run.out", "%w %s has a %s but no %s, so it is not the folder of a run; choose another run.out", ErrFolder, d.path,
			ConfigFile, checkpoint.LockName)
	}
	d.Config = text
	return nil
}

// ownKind rejects an entry that has the name of a run's file or folder but another type:
// through a link, a run would write elsewhere.
func (d *Dir) ownKind(e fs.DirEntry) error {
	kind, path := "file", filepath.Join(d.path, e.Name())
	switch e.Name() {
	case checkpoint.StoreName, TokenDir:
		if e.IsDir() {
			return nil
		}
		kind = "folder"
	case ConfigFile, MetricsFile, TraceFile, EventsFile, StatsFile, SamplesFile, ChangesFile, AdapterFile, ReferenceFile, TeacherFile,
		TeacherTokensFile,
		checkpoint.LockName:
		if e.Type().IsRegular() {
			return nil
		}
	default:
		return nil
	}
	if e.Type()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %s is a symbolic link, which is not allowed; put the %s itself there, or choose another run.out", ErrFolder, path,
			kind)
	}
	return fmt.Errorf("%w: %s is not a %s; remove it, or choose another run.out", ErrFolder, path, kind)
}

// Close releases the lock. If the run has not begun, it removes the folders that Open has made.
func (d *Dir) Close() error {
	if d.Begun || len(d.made) == 0 {
		return d.lock.Unlock()
	}
	// The lock is held until its file is removed, so that no other run takes the folder meanwhile.
	if entries, err := d.FS.ReadDir("."); err == nil && len(entries) == 1 && entries[0].Name() == checkpoint.LockName {
		err = d.FS.RemoveAll(checkpoint.LockName)
		for _, dir := range d.made {
			if err == nil {
				err = os.Remove(dir) // fails if another run uses it
			}
		}
	}
	return d.lock.Unlock()
}
