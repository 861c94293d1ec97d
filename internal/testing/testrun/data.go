package testrun

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// TrainerState reads the trainer state of a checkpoint.
func TrainerState(t *testing.T, out string, step int) trainstate.State {
	t.Helper()
	var s trainstate.State
	if err := json.Unmarshal([]byte(Read(t, filepath.Join(StepDir(out, step), "trainer.json"))), &s); err != nil {
		t.Fatal(err)
	}
	return s
}
