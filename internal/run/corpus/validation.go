package corpus

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// setNumber returns the index in [[eval]] of a validation set of a run; -1 is the one of data.val or data.val_fraction. "" names the one
// that decides which checkpoint is the best.
func setNumber(cfg *config.Config, name string) (int, error) {
	all := cfg.EvalSets()
	if name == "" {
		name = all[0]
	}
	i := slices.Index(all, name)
	if i < 0 {
		return 0, fmt.Errorf("%w: the run has no validation set %s; its sets are %s", plan.ErrOptions, strconv.Quote(name),
			strings.Join(all, ", "))
	}
	if cfg.HasMainSet() {
		i--
	}
	return i, nil
}

// setConfig returns the configuration with which a set is read: cfg itself for -1.
func setConfig(cfg *config.Config, nth int) *config.Config {
	if nth < 0 {
		return cfg
	}
	return configOf(cfg, cfg.Eval[nth])
}

// OfSet returns the data with the validation data of a set: see EvalOptions.Set. Only c is closed.
func (c *Data) OfSet(cfg *config.Config, name string) (*Data, error) {
	nth, err := setNumber(cfg, name)
	if err != nil || nth < 0 {
		return c, err
	}
	of, set := *c, c.Sets[nth].Data
	of.Val = set.Val
	if c.Samples != nil {
		all := *c.Samples
		all.Val = set.Samples.Val
		of.Samples = &all
	}
	return &of, nil
}

// validation is the text of a validation set of a run.
type validation struct {
	key      string // of the files
	files    []string
	was      *data.Identity // when the checkpoint was written; nil: not known
	fraction float64        // of the files; 0: all of them
}

// validationOf finds the text of the nth [[eval]] of a run, or of the main set.
func (m Model) validationOf(cfg *config.Config, nth int, state trainstate.State) (v validation, err error) {
	switch {
	case nth >= 0:
		v.key = plan.EvalKey(nth)
		v.files, err = filesOfSet(setConfig(cfg, nth), cfg.Eval[nth].Files)
		if id, ok := state.Data.Evals[cfg.Eval[nth].Name]; ok {
			v.was = &id
		}
	case len(cfg.Data.Val) > 0:
		v.key, v.was = "data.val", state.Data.Val
		v.files, err = filesOfSet(cfg, cfg.Data.Val)
	default: // a part of data.train, without the files of any [[eval]]; or a split of a folder
		v.key = "data.train"
		train, val, _, err := Files(cfg)
		switch {
		case err != nil:
			return v, err
		case len(val) > 0:
			v.files, v.was = val, state.Data.Val
		case cfg.Documents() && (cfg.Data.Stream || len(cfg.Data.Source) > 0):
			return v, fmt.Errorf("%w: the run validates on a part of a stream, or of several sources, which cannot be read again alone; "+
				"name the data to evaluate", plan.ErrOptions)
		default:
			v.files, v.was, v.fraction = train, &state.Data.Train, cfg.Data.ValFraction
		}
	}
	if err != nil {
		return v, failed(cfg, v.key, err)
	}
	if state.FormatVersion == 1 { // it did not identify its data
		v.was = nil
	}
	return v, nil
}

// validationText opens the text of the nth [[eval]] of the model's run, or of its main set, as the run read it.
func (m Model) validationText(c *Data, cfg *config.Config, nth int, how reading) error {
	b, err := m.Checkpoint.File(rundir.TrainerFile)
	if err != nil {
		return err
	}
	var state trainstate.State
	if err := json.Unmarshal(b, &state); err != nil {
		return fmt.Errorf("%s: %s: %w", m.Checkpoint.Dir(), rundir.TrainerFile, err)
	}
	if cfg.Preference.Loss != "" {
		return fmt.Errorf("%w: the run learned from preferences (preference.loss = %q), and metrics.jsonl has the losses of its "+
			"validations; name the data to evaluate",
			plan.ErrOptions, cfg.Preference.Loss)
	}
	split := cfg.Data.ValSplit
	switch v := state.FormatVersion; {
	case v > trainstate.Version:
		return fmt.Errorf("%s: %w", m.Checkpoint.Dir(), rundir.TooNew(v))
	case v == 1: // it split off the tail
		split = data.Tail
	}
	v, err := m.validationOf(cfg, nth, state)
	if err != nil {
		return err
	}
	var accept func(is data.Identity) error
	if v.was != nil {
		accept = func(is data.Identity) error {
			if d := v.was.Difference(is); d != "" {
				return fmt.Errorf("the validation text of the run has changed (%s); restore it, or name the text to evaluate", d)
			}
			return nil
		}
	}
	if how.documents() {
		if v.was == nil {
			v.fraction = 0
		}
		return m.documents(c, how, v.files, accept, v.fraction)
	}
	corpus, err := c.read(how, v.files, accept)
	if err != nil {
		return failed(cfg, v.key, err)
	}
	if c.Val = corpus; v.fraction > 0 {
		_, c.Val, err = data.Split(corpus, split, v.fraction)
	}
	return err
}
