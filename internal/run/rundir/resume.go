package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// Resumed is what a run resumes from.
type Resumed struct {
	Checkpoint *checkpoint.Checkpoint
	State      trainstate.State
	Tokenizer  tokenizer.Tokenizer
}

// Resume opens the checkpoint to resume from: that of a step or, with 0, the newest
// intact one; nil if there is none. It changes nothing: Begin renames newer ones.
func (d *Dir) Resume(fromStep int) (*Resumed, error) {
	if err := d.Store.CheckPointers(); err != nil {
		return nil, err
	}
	ckpt, err := d.find(fromStep)
	if fromStep == 0 && errors.Is(err, checkpoint.ErrNone) {
		return nil, d.unsaved()
	}
	if err != nil {
		return nil, err
	}
	r := &Resumed{Checkpoint: ckpt}
	if err := r.read(); err != nil {
		err = d.advise(&checkpoint.StepError{Step: ckpt.Step(), Err: err})
		return nil, errors.Join(fmt.Errorf("checkpoint %s: %w", ckpt.Dir(), err), ckpt.Close())
	}
	return r, nil
}

// read reads the trainer's state and the tokenizer.
func (r *Resumed) read() error {
	b, err := r.Checkpoint.File(TrainerFile)
	if err != nil {
		return err
	}
	if r.State, err = trainerState(b); err != nil {
		return err
	}
	r.Tokenizer, err = ReadTokenizer(r.Checkpoint)
	return err
}

// trainerState parses a trainer's state of this program's version.
func trainerState(text []byte) (s trainstate.State, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", TrainerFile, err)
	}
	switch v := s.FormatVersion; {
	case v > trainstate.Version:
		return s, TooNew(v)
	case v < trainstate.Version:
		return s, fmt.Errorf("%s: format version %d: that version drew training windows with replacement, not each once an epoch, so its run cannot resume; start a new run from its weights (model.from)", TrainerFile, v)
	}
	return s, nil
}

// TooNew returns the error about a trainer's state with a version that is too new.
func TooNew(version int) error {
	return fmt.Errorf("%s: %w: it has version %d, but this program knows versions up to %d; use the program that wrote it, or a newer one",
		TrainerFile,
		checkpoint.ErrVersion, version, trainstate.Version)
}

// ReadTokenizer reads a checkpoint's tokenizer. It is nil without an error if there is
// none.
func ReadTokenizer(c *checkpoint.Checkpoint) (tokenizer.Tokenizer, error) {
	b, err := c.File(TokensFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return tokenizer.Unmarshal(b)
}

// OpenTokenizer reads a tokenizer.json, or that of a GGUF file or of a folder, which may be a run's or a checkpoint's.
func OpenTokenizer(path string) (t tokenizer.Tokenizer, err error) {
	if ggufmodel.IsFile(path) {
		return ggufTokenizer(path)
	}
	dir, name, _ := tokenizerAt(path)
	f, err := checkpoint.OpenFS(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := folder.ReadFile(f, name, tokenizer.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	if t, err = tokenizer.Unmarshal(b); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(name), err)
	}
	return t, nil
}

// ggufTokenizer reads the tokenizer in a GGUF file.
func ggufTokenizer(path string) (tokenizer.Tokenizer, error) {
	files, err := ggufmodel.Files(path)
	if err != nil {
		return nil, err
	}
	b, ok := files[TokensFile]
	if !ok {
		return nil, fmt.Errorf("%s has no tokenizer", path)
	}
	t, err := tokenizer.Unmarshal(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// tokenizerAt returns the folder and the name of the tokenizer at a path; whole: the path is a folder.
func tokenizerAt(path string) (dir, name string, whole bool) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return filepath.Dir(path), filepath.Base(path), false
	}
	if at, err := checkpoint.Resolve(path); err == nil {
		path = at
	}
	return path, TokensFile, true
}
