//go:build linux || darwin

package life

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// limitEnv bounds the size of the files that a child may write, which then fails
// as on a full disk.
const limitEnv = "TROUPE_TEST_FILE_BYTES"

func limitFiles() error {
	text := os.Getenv(limitEnv)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n})
}

// TestFullDisk: a run that can't write a file says which, and has lost nothing
// of what it had: it goes on when there is room again.
func TestFullDisk(t *testing.T) {
	want := filepath.Join(t.TempDir(), "want")
	sets := []string{"run.steps=12", "run.eval_every=0"} // whose lines take more room than config.toml
	testrun.Train(t, want, sets...)
	for _, tt := range []struct {
		file  string // the first one for which there is no room
		error string
	}{
		{"config.toml", "write "},
		{"metrics.jsonl", "metrics of step 12: "},
		{"checkpoints/step-00000012/optimizer.safetensors", "checkpoint of step 12: write "},
	} {
		t.Run(filepath.Base(tt.file), func(t *testing.T) {
			info, err := os.Stat(filepath.Join(want, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			out := testrun.Rewind(t, want, 3)
			before := testrun.Tree(t, testrun.StepDir(out, 3))
			cmd, stderr := child(out, append(sets, "run.checkpoint_every=12")...)
			// Lines have more digits or fewer from run to run, and none is as short as this.
			const less = 50
			cmd.Env = append(cmd.Env, limitEnv+"="+strconv.FormatInt(info.Size()-less, 10))
			if err := cmd.Run(); err == nil {
				t.Fatal("it wrote more than it could")
			}
			if text := stderr.String(); !strings.Contains(text, tt.error) {
				t.Fatalf("error %q, want %q in it", text, tt.error)
			}
			if after := testrun.Tree(t, testrun.StepDir(out, 3)); after != before {
				t.Fatalf("the checkpoint was\n%s, it is\n%s", before, after)
			}
			noneLeft(t, out)
			testrun.Train(t, out, sets...)
			testrun.SameFigures(t, want, out)
			testrun.SameState(t, want, out, 12)
		})
	}
}
