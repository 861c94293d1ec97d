package rundir

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// textFiles are the files of a Hugging Face directory that describe how its model reads and writes
// text. Checkpoints and exports copy them unchanged.
var textFiles = []string{TokensFile, TokenizerConfigFile, specialMapFile, "added_tokens.json", "vocab.json", "merges.txt",
	"tokenizer.model", TemplateFile, GenerationFile}

// ReadTexts reads the text files of a checkpoint or of a model's directory.
func ReadTexts(c Files) (map[string][]byte, error) {
	texts := make(map[string][]byte)
	for _, name := range textFiles {
		b, err := c.File(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		texts[name] = b
	}
	return texts, nil
}

// Kept are the files of the model that a run started from.
type Kept struct {
	// Texts are files by name: see ReadTexts.
	Texts map[string][]byte
	// Model is its config.json; nil: none.
	Model []byte
}

// File returns one of the files.
func (k Kept) File(name string) ([]byte, error) {
	b, ok := k.Texts[name]
	if name == ModelFile {
		b, ok = k.Model, k.Model != nil
	}
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return b, nil
}

// Keep reads the files of a checkpoint, which may be nil.
func Keep(c *checkpoint.Checkpoint) (k Kept, err error) {
	if c == nil {
		return k, nil
	}
	if k.Texts, err = ReadTexts(c); err != nil {
		return k, err
	}
	k.Model, err = c.File(ModelFile)
	return k, err
}

// vocabFiles repeat the content of tokenizer.json for older programs.
var vocabFiles = []string{"added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model"}

// sameTokenizer reports whether a tokenizer.json is that of t, perhaps written differently.
func sameTokenizer(file []byte, t tokenizer.Tokenizer) bool {
	own, err := tokenizer.Unmarshal(file)
	if err != nil || own.Name() != t.Name() || own.Name() == tokenizer.HFName {
		return false
	}
	a, errA := tokenizer.Marshal(own)
	b, errB := tokenizer.Marshal(t)
	return errors.Join(errA, errB) == nil && bytes.Equal(a, b)
}

// TextsAt is ReadTexts for a data.tokenizer. It is nil if the path is a tokenizer.json and not a
// folder or a GGUF file.
func TextsAt(path string) (texts map[string][]byte, err error) {
	if ggufmodel.IsFile(path) {
		texts, err = ggufmodel.Files(path)
		delete(texts, ModelFile)
		return texts, err
	}
	dir, _, whole := tokenizerAt(path)
	if !whole {
		return nil, nil
	}
	f, err := checkpoint.OpenFS(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return ReadTexts(inFolder{f})
}

// inFolder reads files of a folder.
type inFolder struct{ fs checkpoint.FS }

func (f inFolder) File(name string) ([]byte, error) {
	return folder.ReadFile(f.fs, name, checkpoint.FileBytesMax)
}
