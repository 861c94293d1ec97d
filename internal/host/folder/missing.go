package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// runs is where runs are by default. People know a run by its name there.
const runs = "runs"

// Missing explains err to the user who gave a path, if the path does not exist: it says where the path was given (a flag or an
// argument; may be empty), the path and the working directory. For the name of a run it suggests the folder. kind is "folder", "file"
// or a longer noun. The result wraps err; any other error, or nil, is returned unchanged.
func Missing(err error, where, kind, path string) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, found := os.Stat(path); !errors.Is(found, fs.ErrNotExist) {
		return err // a file in the folder is missing
	}
	if where != "" {
		where += ": "
	}
	if path == "" {
		return words.Explained(err, fmt.Sprintf("%sthe path is empty; give a %s", where, kind))
	}
	text := fmt.Sprintf("%sthe %s %q does not exist", where, kind, path)
	if here, wdErr := os.Getwd(); wdErr == nil && !filepath.IsAbs(path) {
		text += fmt.Sprintf(" (working directory %s)", here)
	}
	if run := filepath.Join(runs, path); strings.HasSuffix(kind, "folder") && filepath.Base(path) == path {
		if info, runErr := os.Stat(run); runErr == nil && info.IsDir() {
			text += fmt.Sprintf(", did you mean %s?", run)
		}
	}
	return words.Explained(err, text)
}
