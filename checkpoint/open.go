package checkpoint

import (
	"errors"
	"io/fs"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Checkpoint is an open checkpoint or another program's Hugging Face folder. Its tensors are
// memory-mapped, not read; Close unmaps them. The folder may be renamed or removed while it is
// open.
type Checkpoint struct {
	// Manifest is nil for another program's folder, of which only the form of the tensor files is
	// verified.
	Manifest *Manifest

	dir              *directory // nil: see FromModel
	model, optimizer *Tensors
	path             string            // of a model without a directory
	foreign          map[string][]byte // its files
}

// Open opens a checkpoint. If it has a manifest, every byte is verified first, and files that the
// manifest doesn't list are ignored. The error is ErrDamaged, ErrMissing, ErrUnreadable or
// ErrVersion.
func Open(path string) (*Checkpoint, error) {
	f, err := folder.Open(path)
	if err != nil {
		return nil, folder.Unreadable(err)
	}
	return open(f, false)
}

// open is Open for an open folder, which it closes; own says that a manifest is required.
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

// Close releases the checkpoint's files. The tensors' bytes are invalid afterwards.
func (c *Checkpoint) Close() error {
	err := errors.Join(c.model.close(), c.optimizer.close())
	if c.dir == nil {
		return err
	}
	return errors.Join(err, c.dir.Close())
}

// Dir returns the path at which the checkpoint was opened.
func (c *Checkpoint) Dir() string {
	if c.dir == nil {
		return c.path
	}
	return c.dir.path()
}

// Step returns the step after which the checkpoint was written; 0 for another program's folder.
func (c *Checkpoint) Step() int {
	if c.Manifest == nil {
		return 0
	}
	return c.Manifest.Step
}

// Part reports whether the checkpoint has only some tensors of its model.
func (c *Checkpoint) Part() bool { return c.Manifest != nil && c.Manifest.has(partName) }

// Model returns the model's tensors, of all shards.
func (c *Checkpoint) Model() *Tensors { return c.model }

// Optimizer returns the optimizer's tensors; none if its state was left out.
func (c *Checkpoint) Optimizer() *Tensors { return c.optimizer }

// File reads one of the other files, such as config.json or trainer.json. A missing file is
// fs.ErrNotExist.
func (c *Checkpoint) File(name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if c.dir == nil {
		return c.foreignFile(name)
	}
	if c.Manifest != nil && !c.Manifest.has(name) {
		return nil, &fs.PathError{Op: "open", Path: c.dir.fsys.Path(name), Err: fs.ErrNotExist}
	}
	data, err := c.dir.read(name, FileBytesMax)
	if c.Manifest != nil && errors.Is(err, fs.ErrNotExist) { // not fs.ErrNotExist
		err = faultf(Missing, "%s is missing, but the manifest lists it: %s", c.dir.fsys.Path(name), err)
	}
	return data, err
}
