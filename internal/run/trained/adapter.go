package trained

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Adapted is the adapter of a model: from a directory of PEFT beside its base, or from a checkpoint that has the trained parameters
// alone. It is closed with the model.
type Adapted struct {
	base      *checkpoint.Checkpoint // of a checkpoint without the frozen weights; nil: the model's checkpoint has all
	directory *peft.Directory
	// Is names the adapter's base, for a checkpoint; nil for a directory.
	Is *rundir.Adapted
}

// OpenAdapted opens the adapter of a model and enters it in the model's sizes. dir is a directory of PEFT; "": the checkpoint's own
// adapter, if it has one. The result is not nil even if there is no adapter.
func OpenAdapted(c *checkpoint.Checkpoint, dir string, sizes *stages.Config) (a *Adapted, err error) {
	a = &Adapted{}
	if dir == "" {
		if a.base, a.Is, err = plan.OpenBase(c, ""); err != nil || a.Is == nil {
			return a, err
		}
		sizes.Adapter = a.Is.Adapter
		return a, nil
	}
	if c.Part() {
		return a, fmt.Errorf("%w: %s has an adapter already: to use another one, give its base in place of it", plan.ErrOptions, c.Dir())
	}
	if a.directory, err = peft.Read(dir); err != nil {
		return a, explained(err, dir)
	}
	base, err := stages.NewModel(*sizes)
	if err != nil {
		return a, err
	}
	if sizes.Adapter, err = a.directory.Adapter(base); err != nil {
		return a, err
	}
	return a, plan.SameBase(a.directory, c)
}

// Exists reports whether there is an adapter.
func (a *Adapted) Exists() bool { return a.Is != nil || a.directory != nil }

// explained says what to do with a folder of a run that was given as a directory of PEFT.
func explained(err error, dir string) error {
	if errors.Is(err, peft.ErrNotAdapter) {
		if c, openErr := checkpoint.OpenAt(dir); openErr == nil {
			defer func() { _ = c.Close() }() // only read
			if c.Part() {
				return fmt.Errorf("%w; it is the folder of a run with an adapter: give it as the model, without --adapter", err)
			}
		}
	}
	return err
}

// Source returns the weights of a model with the adapter, after checking them. c is the model's checkpoint.
func (a *Adapted) Source(c *checkpoint.Checkpoint, m *stages.Model) (stages.Source, error) {
	switch {
	case a.directory != nil:
		if err := plan.CheckWeights(c, m, nil); err != nil {
			return nil, err
		}
		return a.directory.Weights(m, plan.Weights(c))
	case a.base != nil:
		if err := errors.Join(plan.CheckWeights(a.base, m, nil), plan.CheckAdapter(c, m, nil)); err != nil {
			return nil, err
		}
		return plan.AdaptedWeights(a.base, c, m, 0, tensorops.Float32), nil
	}
	return plan.Weights(c), plan.CheckWeights(c, m, nil)
}

// Base returns the checkpoint with the weights of the base; c is the model's.
func (a *Adapted) Base(c *checkpoint.Checkpoint) *checkpoint.Checkpoint {
	if a.base != nil {
		return a.base
	}
	return c
}

// Close closes the files of the adapter.
func (a *Adapted) Close() (err error) {
	if a == nil {
		return nil
	}
	if a.directory != nil {
		err = a.directory.Close()
	}
	if a.base != nil {
		err = errors.Join(err, a.base.Close())
	}
	return err
}

// chosenTemplate returns the chat template to use instead of the model's: the chosen one, or the one that came with the adapter.
func chosenTemplate(o Options) (rundir.Template, error) {
	if o.ChatTemplate == "" {
		return TemplateBeside(o.Adapter)
	}
	template, err := rundir.ChosenTemplate("--chat-template", o.ChatTemplate)
	if err != nil {
		return template, fmt.Errorf("--chat-template: %w", err)
	}
	return template, nil
}

// TemplateBeside returns the chat template in a directory of PEFT, if it has one. dir may be empty.
func TemplateBeside(dir string) (rundir.Template, error) {
	name := filepath.Join(dir, rundir.TemplateFile)
	if _, err := os.Stat(name); dir == "" || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return rundir.Template{}, nil
	}
	template, err := rundir.ChosenTemplate("--adapter", name)
	if err != nil {
		return template, fmt.Errorf("--adapter: %w", err)
	}
	return template, nil
}
