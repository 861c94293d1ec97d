package rundir

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/troupe-ml/troupe/config"
)

// Conflicts compares a stored configuration with today's. What nobody set today
// and has a default that depends on the run's length is taken over.
func Conflicts(cfg *config.Config, name string, text []byte) error {
	stored, err := config.ParseStored(name, text)
	if err != nil {
		return fmt.Errorf("%w: the stored configuration: %w", ErrFolder, err)
	}
	if !cfg.IsSet("optimizer.warmup_steps") {
		cfg.Optimizer.WarmupSteps = stored.Optimizer.WarmupSteps
		if err := cfg.Validate(); err != nil {
			return err
		}
	}
	if !cfg.IsSet("data.special_tokens") && cfg.Text() && cfg.IDBytes() == 0 {
		cfg.Data.SpecialTokens = stored.Data.SpecialTokens // runs that are older than the key took names for text
	}
	var errs []error
	for _, c := range config.ResumeConflicts(stored, cfg) {
		errs = append(errs, cfg.Errorf(c.Key, "%w %s belongs to a run with %s, now it is %s; go on with the old value, or choose another run.out", ErrFolder, filepath.Dir(name), c.A, c.B))
	}
	return errors.Join(errs...)
}
