package rundir

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/troupe-ml/troupe/config"
)

// Conflicts compares a stored configuration with the present one. It returns the present one with some defaults of the
// stored one: see config.WithDefaultsOf.
func Conflicts(cfg *config.Config, name string, text []byte) (*config.Config, error) {
	stored, err := config.ParseStored(name, text)
	if err != nil {
		return nil, fmt.Errorf("%w: the stored configuration: %w", ErrFolder, err)
	}
	if cfg, err = cfg.WithDefaultsOf(stored); err != nil {
		return nil, err
	}
	var errs []error
	for _, c := range config.ResumeConflicts(stored, cfg) {
		fix := "use the old value, or choose another run.out"
		if c.Key == "optimizer.lr" || c.Key == "optimizer.min_lr" {
			fix = "use the old value, and change the rate while the run trains (on the page of --ui, or with engine cluster rate); or start from its weights with model.from and another run.out"
		}
		errs = append(errs, cfg.Errorf(c.Key, "%w %s has a run with %s, but the value is now %s; %s",
			ErrFolder, filepath.Dir(name), c.A, c.B, fix))
	}
	return cfg, errors.Join(errs...)
}
