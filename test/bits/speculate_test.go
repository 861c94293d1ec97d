package bits

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/telemetry"
)

// ahead makes a step begin before the one before is decided, where the schedule has rows.
const ahead = "pipeline.post_validation=true"

// howUpdated are the ways in which the steps of a run made their update.
func howUpdated(rs []telemetry.Record) (counts troupe.Updates) {
	for _, r := range rs {
		switch r.Update {
		case actors.UpdateKept:
			counts.Kept++
		case actors.UpdateRolledBack:
			counts.RolledBack++
		case actors.UpdateWaited:
			counts.Waited++
		}
	}
	return counts
}

// medianNorm is a clip_norm that about every second step of a training is below.
func medianNorm(t *testing.T, sets ...string) string {
	t.Helper()
	var norms []float64
	for _, r := range testrun.Records(t, testrun.Trained(t, append(sets, "optimizer.clip_norm=0")...)) {
		if r.GradNorm != nil {
			norms = append(norms, *r.GradNorm)
		}
	}
	slices.Sort(norms)
	return fmt.Sprintf("optimizer.clip_norm=%v", norms[len(norms)/2])
}

// TestExactAhead: where steps begin ahead, with updates that are kept and others that
// are rolled back, everything is as it is under TestExact.
func TestExactAhead(t *testing.T) {
	for name, family := range testrun.Families {
		for _, optimizer := range []string{"adamw", "sgd", "adamw, bfloat16"} {
			t.Run(name+", "+optimizer, func(t *testing.T) {
				optimizer, half := strings.CutSuffix(optimizer, ", bfloat16")
				if half {
					family = slices.Concat(family, precisions[", bfloat16"])
				}
				if testrun.RaceDetector && (optimizer == "sgd" || half) {
					t.Skip("races don't depend on the numbers")
				}
				sets := slices.Concat(family, []string{"run.steps=14", "run.eval_every=7", "run.checkpoint_every=5", "optimizer.name=" + optimizer})
				sets = append(sets, medianNorm(t, sets...))
				want := filepath.Join(t.TempDir(), "out")
				testrun.Train(t, want, sets...)
				for i, l := range layouts {
					if testrun.RaceDetector && i%6 != 2 || !testrun.RaceDetector && !testrun.Long && (i%2 == 0) == (name == "llama") ||
						(optimizer == "sgd" || half) && i%3 != 0 || !testrun.Long && i%7 > 3 {
						continue // as in TestExact
					}
					t.Run(l.name, func(t *testing.T) {
						t.Parallel()
						out := filepath.Join(t.TempDir(), "out")
						result, _ := testrun.Train(t, out, slices.Concat(sets, l.sets, []string{ahead})...)
						testrun.SameFigures(t, want, out)
						testrun.SameState(t, want, out, 10)
						testrun.SameState(t, want, out, 14)
						how := howUpdated(testrun.Records(t, out))
						// Steps 5, 7, 10 and 14 have to wait.
						if how != result.Updates || how.Kept == 0 || how.RolledBack == 0 || how.Waited < 4 || how.Kept+how.RolledBack+how.Waited != 14 {
							t.Errorf("%+v, in the records %+v: want some of each kind, 14 in all", result.Updates, how)
						}
					})
				}
			})
		}
	}
}

// TestSkipAhead: steps whose loss is no number are rolled back, and the others train on
// as they do where every step waits.
func TestSkipAhead(t *testing.T) {
	text := testrun.Read(t, "testdata/troupe.txt")
	half := len(text) / 2
	strange := testrun.Write(t, filepath.Join(t.TempDir(), "strange.txt"), text[:half]+strings.ReplaceAll(text[half:], "stage", "\x01"))
	sets := []string{"data.train=" + strange, "data.val=testdata/troupe.txt", "model.family=llama", "model.tie_embeddings=false",
		"run.eval_every=0", "run.checkpoint_every=2", "run.steps=16", "optimizer.clip_norm=0"}
	first := testrun.Trained(t, sets...)
	var ends []string
	for _, more := range [][]string{nil, {"pipeline.stages=3", "pipeline.schedule=zb-h2", ahead}} {
		out := testrun.Rewind(t, first, 2)
		testrun.Doctor(t, out, 2, "model.embed_tokens.weight", func(values []float32) { values[16] = float32(math.NaN()) })
		result, _ := testrun.Train(t, out, slices.Concat(sets, more)...)
		ends = append(ends, out)
		if more == nil {
			continue
		}
		skipped := 0
		for _, r := range testrun.Records(t, out)[3:] {
			if r.Skipped {
				skipped++
			}
			if r.Skipped && r.Update == actors.UpdateKept || !r.Skipped && r.Update == actors.UpdateRolledBack {
				t.Errorf("step %d: %s, %s", r.Step, testrun.Figures(r), r.Update)
			}
		}
		if skipped == 0 || result.Updates.RolledBack == 0 || result.Updates.Kept == 0 {
			t.Errorf("%d steps were skipped; %+v", skipped, result.Updates)
		}
	}
	testrun.SameFigures(t, ends[0], ends[1])
	testrun.SameState(t, ends[0], ends[1], 16)
}

// TestStopAhead: a run that is stopped again and again while steps are ahead ends as an
// undisturbed one.
func TestStopAhead(t *testing.T) {
	sets := []string{"run.steps=30", "run.eval_every=0", "run.checkpoint_every=0"}
	sets = append(sets, medianNorm(t, sets...))
	want := testrun.Trained(t, sets...)
	out := filepath.Join(t.TempDir(), "out")
	pipelined := slices.Concat(sets, []string{"pipeline.stages=2", "pipeline.schedule=zb-v", ahead})
	for _, at := range []int{1, 4, 9, 17} {
		run := testrun.Start(t, testrun.NewConfig(t, out, pipelined...))
		testrun.Until(t, run, testrun.Step(at))
		run.Pause()
		run.Checkpoint()
		run.Resume()
		run.Stop()
		if result, _ := testrun.Finish(t, run); !result.Stopped {
			t.Logf("it ended before it was stopped behind step %d: the machine is busy", at)
			break
		}
	}
	testrun.Train(t, out, pipelined...)
	testrun.SameFigures(t, want, out)
	testrun.SameState(t, want, out, 30)
}
