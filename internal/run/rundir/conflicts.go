package rundir

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Adopt returns the present configuration of a run with some values of its stored one: see config.WithDefaultsOf.
// kept says which values of the present one do not count, and how to change them.
func Adopt(cfg *config.Config, name string, text []byte) (own, stored *config.Config, kept []string, err error) {
	if stored, err = parseStored(name, text); err != nil {
		return nil, nil, nil, err
	}
	if own, err = cfg.WithDefaultsOf(stored); err != nil {
		return nil, nil, nil, err
	}
	for _, c := range cfg.Kept(own) {
		kept = append(kept, fmt.Sprintf("%s: the run keeps %s, not the default %s; to change it, use --set %s=%s", c.Key, c.B, c.A, c.Key, c.A))
	}
	return own, stored, kept, nil
}

func parseStored(name string, text []byte) (*config.Config, error) {
	stored, err := config.ParseStored(name, text)
	if err != nil {
		err = fmt.Errorf("%w: the stored configuration: %w", ErrFolder, err)
	}
	return stored, err
}

// Check reports what Conflicts would report to a run that starts in its folder now. Nothing is reported about a folder that
// is not a run's.
func Check(cfg *config.Config) error {
	fsys, err := checkpoint.OpenFS(cfg.Run.Out)
	if err != nil {
		return nil // the folder does not exist, or the start reports what is wrong with it
	}
	text, err := folder.ReadFile(fsys, ConfigFile, checkpoint.FileBytesMax)
	if err := errors.Join(err, fsys.Close()); err != nil {
		return nil // as above
	}
	name := filepath.Join(cfg.Run.Out, ConfigFile)
	own, _, _, err := Adopt(cfg, name, text)
	if err != nil {
		return err
	}
	return Conflicts(own, name, text)
}

// Conflicts compares a stored configuration with the present one, and reports the keys that a resume can't change.
func Conflicts(cfg *config.Config, name string, text []byte) error {
	stored, err := parseStored(name, text)
	if err != nil {
		return err
	}
	another := "run.name" // the key that people set
	if cfg.IsSet("run.out") {
		another = "run.out"
	}
	var errs []error
	for _, c := range config.ResumeConflicts(stored, cfg) {
		errs = append(errs, cfg.Errorf(c.Key, "%w %s has a run with %s, but the value is now %s; use the old value, choose another %s for a new run, or start the new run from the weights of this one with model.from = %q",
			ErrFolder, filepath.Dir(name), c.A, c.B, another, cfg.Run.Out))
	}
	return errors.Join(errs...)
}
