package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/peft"
)

// MissingModel explains a model's folder that does not exist or has an adapter of PEFT, to the user who named it. The result wraps
// err; any other error, or nil, is returned unchanged.
func MissingModel(err error, from string) error {
	if errors.Is(err, checkpoint.ErrNotCheckpoint) {
		if _, found := os.Stat(filepath.Join(from, peft.ConfigFile)); found == nil {
			return fmt.Errorf("%s is a directory of PEFT, which has only an adapter: name its base as the model, and the directory with --adapter "+
				"or adapter.from (%w)", from, err)
		}
	}
	kind := "folder"
	if ggufmodel.HasExtension(from) {
		kind = "file"
	}
	told := folder.Missing(err, "", kind, from)
	if isMissing(err, from) && namesHub(from) {
		return fmt.Errorf("%w; if %s is a model of Hugging Face, download it and name its folder: hf download %[2]s --local-dir %[3]s", told,
			from,
			from[strings.IndexByte(from, '/')+1:])
	}
	return told
}

// missingFrom is MissingModel for model.from.
func missingFrom(cfg *config.Config, err error) error {
	from := cfg.Model.From
	told := MissingModel(err, from)
	if !isMissing(err, from) {
		return told
	}
	for _, name := range cfg.Unset("model.from") {
		told = fmt.Errorf("%w; the environment variable %s is not set", told, name)
	}
	if !namesHub(from) && !ofRun(from) && !ggufmodel.HasExtension(from) {
		told = fmt.Errorf("%w; download a model with: hf download NAME --local-dir %s", told, from)
	}
	return told
}

func isMissing(err error, path string) bool {
	if !errors.Is(err, fs.ErrNotExist) || path == "" {
		return false
	}
	_, found := os.Stat(path)
	return errors.Is(found, fs.ErrNotExist)
}

// hubName matches names of models on Hugging Face.
var hubName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// namesHub reports whether a path that does not exist may be the name of a model on Hugging Face: nobody keeps such a folder here.
func namesHub(path string) bool {
	if !hubName.MatchString(path) || ofRun(path) || ggufmodel.HasExtension(path) {
		return false
	}
	_, err := os.Stat(filepath.Dir(path))
	return errors.Is(err, fs.ErrNotExist)
}

// ofRun reports whether a path is that of a run by default.
func ofRun(path string) bool {
	return strings.HasPrefix(filepath.ToSlash(filepath.Clean(path)), "runs/")
}
