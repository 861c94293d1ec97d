package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Checkpoint is an open checkpoint or a foreign Hugging Face directory. Its
// tensors are mapped, not read; Close ends that. The folder may be renamed or
// removed meanwhile.
type Checkpoint struct {
	// Manifest is nil for a foreign directory, of which nothing is verified but
	// the form of the tensor files.
	Manifest *Manifest

	dir              *directory
	model, optimizer *Tensors
}

// Open opens a checkpoint. With a manifest, every byte is verified first, and
// files that it doesn't list are not there; what differs gives ErrDamaged.
func Open(path string) (*Checkpoint, error) {
	d, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{dir: d, model: &Tensors{}, optimizer: &Tensors{}}
	if err := c.load(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) load() error {
	m, err := c.dir.manifest()
	if err != nil {
		return fmt.Errorf("%s: %w: %s: %w", c.dir.path, ErrDamaged, manifestName, err)
	}
	c.Manifest = m
	if m != nil {
		report := &Report{Dir: c.dir.path, Manifest: m, Problems: c.dir.check(m)}
		if err := report.Err(); err != nil {
			return err
		}
	}
	model, err := c.dir.openModel(m)
	if err != nil {
		return err
	}
	c.model = model
	if !c.dir.has(m, optimizerName) {
		return nil
	}
	optimizer, err := c.dir.openTensors(nil, optimizerName)
	if err != nil {
		return err
	}
	c.optimizer = optimizer
	return nil
}

// Close gives back what Open has taken. The tensors' bytes are invalid after it.
func (c *Checkpoint) Close() error {
	return errors.Join(c.model.close(), c.optimizer.close(), c.dir.Close())
}

// Dir is the path that the checkpoint was opened at.
func (c *Checkpoint) Dir() string { return c.dir.path }

// Step is the step after which the checkpoint was written; 0 for a foreign
// directory.
func (c *Checkpoint) Step() int {
	if c.Manifest == nil {
		return 0
	}
	return c.Manifest.Step
}

// Model has the model's tensors, of all its shards.
func (c *Checkpoint) Model() *Tensors { return c.model }

// Optimizer has the optimizer's tensors, none without HasOptimizer.
func (c *Checkpoint) Optimizer() *Tensors { return c.optimizer }

// HasOptimizer tells whether the optimizer's state is there.
func (c *Checkpoint) HasOptimizer() bool { return len(c.optimizer.files) > 0 }

// File reads one of the other files: config.json, trainer.json, … One that isn't
// there gives fs.ErrNotExist.
func (c *Checkpoint) File(name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if !c.dir.has(c.Manifest, name) {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(c.dir.path, name), Err: fs.ErrNotExist}
	}
	return c.dir.read(name, FileBytesMax)
}
