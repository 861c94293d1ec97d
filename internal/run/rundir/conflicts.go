package rundir

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/troupe-ml/troupe/config"
)

// Conflicts compares a stored configuration with today's. It returns today's with what nobody set today and has
// another default there: see config.WithDefaultsOf.
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
		errs = append(errs, cfg.Errorf(c.Key, "%w %s belongs to a run with %s, now it is %s; go on with the old value, or choose another run.out",
			ErrFolder, filepath.Dir(name), c.A, c.B))
	}
	return cfg, errors.Join(errs...)
}
