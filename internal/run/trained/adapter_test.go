package trained

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/peft"
)

// TestNotModel: a directory of PEFT is no model, and a file of it is no directory.
func TestNotModel(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, peft.ConfigFile)
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := TemplateBeside(file); err != nil {
		t.Errorf("a file: %v", err)
	}
	if _, err := peft.Read(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file: %v", err)
	}
	if _, err := Open(Options{From: dir}, true); !errors.Is(err, checkpoint.ErrNotCheckpoint) || !strings.Contains(err.Error(), "--adapter") {
		t.Errorf("an adapter as a model: %v", err)
	}
}
