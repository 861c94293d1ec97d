package checkpoint

import (
	"errors"
	"io/fs"

	"github.com/troupe-ml/troupe/internal/host/folder"
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
// files that it doesn't list are not there. The error is ErrDamaged, ErrMissing,
// ErrUnreadable or ErrVersion.
func Open(path string) (*Checkpoint, error) {
	f, err := folder.Open(path)
	if err != nil {
		return nil, folder.Unreadable(err)
	}
	return open(f, false)
}

// open is Open for a folder that is open, which it closes; own says that there has
// to be a manifest.
func open(f folder.FS, own bool) (*Checkpoint, error) {
	c := &Checkpoint{dir: newDirectory(f), model: &Tensors{}, optimizer: &Tensors{}}
	if err := c.load(own); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) load(own bool) error {
	report := c.dir.check(own, true)
	if err := report.Err(); err != nil {
		return err
	}
	c.Manifest = report.Manifest
	model, err := c.dir.openModel(c.Manifest)
	if err != nil {
		return err
	}
	c.model = model
	if there, err := c.dir.has(c.Manifest, optimizerName); err != nil || !there {
		return err
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
func (c *Checkpoint) Dir() string { return c.dir.path() }

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

// Optimizer has the optimizer's tensors, none where its state was left out.
func (c *Checkpoint) Optimizer() *Tensors { return c.optimizer }

// File reads one of the other files: config.json, trainer.json, … One that isn't
// there gives fs.ErrNotExist.
func (c *Checkpoint) File(name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if c.Manifest != nil && !c.Manifest.has(name) {
		return nil, &fs.PathError{Op: "open", Path: c.dir.fsys.Path(name), Err: fs.ErrNotExist}
	}
	data, err := c.dir.read(name, FileBytesMax)
	if c.Manifest != nil && errors.Is(err, fs.ErrNotExist) { // not as if there were none
		err = faultf(Missing, "%s: the manifest lists it: %s", c.dir.fsys.Path(name), err)
	}
	return data, err
}
