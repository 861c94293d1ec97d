package rundir

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/stages"
)

// Adapted is adapter.json: which adapter a checkpoint has, and of which base. Such a checkpoint has the trained parameters alone.
type Adapted struct {
	Version int             `json:"format_version"`
	Base    Base            `json:"base"`
	Adapter *stages.Adapter `json:"adapter"`
}

// Base identifies the model whose weights an adapter was trained beside.
type Base struct {
	From   string `json:"from"`   // where it was: model.from
	SHA256 string `json:"sha256"` // of its weights: see plan.BaseHash
}

// adaptedVersion is the version of Adapted.
const adaptedVersion = 1

// ErrBase: a checkpoint belongs to another base than the given one.
var ErrBase = errors.New("another base model")

// ReadAdapted reads a checkpoint's adapter.json; nil: it has a whole model.
func ReadAdapted(c *checkpoint.Checkpoint) (*Adapted, error) {
	if !c.Part() {
		return nil, nil
	}
	text, err := c.File(AdapterFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has only a part of a model, but no %s that names its base", c.Dir(), AdapterFile)
	}
	if err != nil {
		return nil, err
	}
	a, err := parseAdapted(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Dir(), AdapterFile, err)
	}
	return a, nil
}

func parseAdapted(text []byte) (*Adapted, error) {
	var version struct {
		Version int `json:"format_version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, err
	}
	if version.Version != adaptedVersion {
		return nil, fmt.Errorf("%w: it has version %d, but this program knows only %d", checkpoint.ErrVersion, version.Version, adaptedVersion)
	}
	a := &Adapted{}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(a); err != nil {
		return nil, err
	}
	if sum, err := hex.DecodeString(a.Base.SHA256); err != nil || len(sum) != 32 {
		return nil, fmt.Errorf("base.sha256 is %q, which is not the hash of a base", a.Base.SHA256)
	}
	if a.Adapter == nil {
		return nil, errors.New("it describes no adapter")
	}
	return a, nil
}

// SameBase returns an error with both hashes if a checkpoint's base is another one than the weights at a path with a hash.
func (a *Adapted) SameBase(dir, from, hash string) error {
	if a.Base.SHA256 == hash {
		return nil
	}
	return fmt.Errorf("%w: the adapter in %s was trained beside the weights of %s with SHA-256 %s, but those of %s have %s; use the base that it was trained with",
		ErrBase, dir, a.Base.From, a.Base.SHA256, from, hash)
}

// CheckBase returns an error with both hashes if a start of the run, perhaps without a checkpoint, had another base than the weights
// at a path with a hash.
func (d *Dir) CheckBase(from, hash string) error {
	text, err := folder.ReadFile(d.FS, AdapterFile, checkpoint.FileBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	was, err := parseAdapted(text)
	if err != nil {
		return fmt.Errorf("%s: %w", d.FS.Path(AdapterFile), err)
	}
	return was.SameBase(d.path, from, hash)
}

// NoteBase names the base of an adapter in the run's folder, so that a start after a crash before the first checkpoint has the same.
func (d *Dir) NoteBase(adapter *stages.Adapter, base Base) error {
	text, err := adaptedJSON(adapter, base)
	if err != nil {
		return err
	}
	return checkpoint.WriteFileAtomic(d.FS, AdapterFile, text)
}

func adaptedJSON(adapter *stages.Adapter, base Base) ([]byte, error) {
	text, err := json.MarshalIndent(Adapted{Version: adaptedVersion, Base: base, Adapter: adapter}, "", "  ")
	return append(text, '\n'), err
}

// OfAdapter makes the Saver write only the trained parameters of a model with an adapter, and name its base.
func (s *Saver) OfAdapter(adapter *stages.Adapter, base Base) error {
	text, err := adaptedJSON(adapter, base)
	if err != nil {
		return err
	}
	s.static[AdapterFile] = text
	s.part, s.params = true, nil // each parameter has a tensor of its own
	return nil
}
