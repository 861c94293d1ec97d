package attempt

import (
	"testing"

	"github.com/troupe-ml/troupe/config"
)

// TestDiskNeed: a start warns where what the run will keep takes more than half of the free space.
func TestDiskNeed(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		name string
		run  config.Run
		step int64
		have int
		free int64
		want string
	}{
		{"enough", config.Run{Steps: 1000, CheckpointEvery: 100, Keep: 3, Best: config.BestWeights}, 0, 0, 100 * gib, ""},
		{"four checkpoints and two weights", config.Run{Steps: 1000, CheckpointEvery: 100, Keep: 3, Best: config.BestWeights}, 0, 0, 19 * gib,
			"each checkpoint takes 2.0 GiB; with run.keep = 3 and the best weights they need 10.0 GiB more, and 19.0 GiB are free"},
		{"one more best", config.Run{Steps: 1000, CheckpointEvery: 100, Keep: 3, Best: config.BestFull}, 0, 0, 19 * gib,
			"each checkpoint takes 2.0 GiB; with run.keep = 3 and the best they need 10.0 GiB more, and 19.0 GiB are free"},
		{"they are there", config.Run{Steps: 1000, CheckpointEvery: 100, Keep: 3, Best: config.BestNone}, 500, 3, 5 * gib, ""},
		{"only the last", config.Run{Steps: 1000, Keep: 3, Best: config.BestNone}, 0, 0, 3 * gib,
			"each checkpoint takes 2.0 GiB; with run.keep = 3 they need 2.0 GiB more, and 3.0 GiB are free"},
		{"all are kept", config.Run{Steps: 1000, CheckpointEvery: 100}, 0, 0, gib, ""},
		{"nothing is left to do", config.Run{Steps: 1000, CheckpointEvery: 100, Keep: 3}, 1000, 1, gib, ""},
	} {
		if got := diskNeed(tt.run, tt.step, tt.have, 2*gib, gib, tt.free); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
