package bits

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// distillSets are the keys of a run that learns from a teacher, a wider model that has learned a few steps.
func distillSets(t *testing.T, sets ...string) []string {
	t.Helper()
	teacher, data := filepath.Join(t.TempDir(), "teacher"), testrun.PairsOf(t, 60)
	documents := []string{"data.train=" + data, "data.format=documents"}
	testrun.Train(t, teacher, slices.Concat(documents, []string{"model.hidden=48", "run.steps=12", "run.eval_every=0",
		"run.checkpoint_every=0", "optimizer.warmup_steps=0", "optimizer.lr=0.01"})...)
	return slices.Concat(documents, []string{"distill.from=" + teacher, "distill.top_k=8"}, sets)
}

// TestExactDistill: a run that learns from a teacher has the same bits under every layout, and after a resume.
func TestExactDistill(t *testing.T) {
	for k, r := range [][]string{
		{"model.family=gpt2"},
		{"model.family=llama", "model.kv_heads=2", "device.dtype=bfloat16", "distill.loss=reverse_kl", "distill.temperature=2",
			"distill.weight=0.5"},
	} {
		t.Run(r[0], func(t *testing.T) {
			_, end, few := testrun.Span()
			sets := slices.Concat(distillSets(t, r...), few)
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			for i, l := range layouts {
				if (i+5*k)%13 == 4 && !testrun.RaceDetector || testrun.Long {
					sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
				}
			}
			replicas, out := filepath.Join(t.TempDir(), "replicas"), filepath.Join(t.TempDir(), "zero")
			testrun.Train(t, replicas, slices.Concat(sets, []string{"parallel.data=2"})...)
			testrun.Train(t, out, slices.Concat(sets, []string{"parallel.data=2", "parallel.zero=3", "pipeline.stages=2"})...)
			testrun.SameFigures(t, replicas, out)
			testrun.SameState(t, replicas, out, end)
		})
	}
}

// TestDistillLearns: the divergence falls. The teacher's tokens are computed once.
func TestDistillLearns(t *testing.T) {
	sets := distillSets(t, "run.steps=30", "run.checkpoint_every=15", "run.eval_every=0", "optimizer.lr=0.01", "distill.weight=0.8")
	out := filepath.Join(t.TempDir(), "out")
	computed := func(sets ...string) int {
		t.Helper()
		_, events := testrun.Train(t, out, sets...)
		return warnings(events, "most likely tokens")
	}
	if n := computed(sets...); n != 1 {
		t.Errorf("a new run computed them %d times", n)
	}
	all := testrun.Records(t, out)
	first, last := all[1], all[len(all)-1]
	if !(last.Metrics["divergence"] < 0.5*first.Metrics["divergence"]) || last.Metrics["cross_entropy"] == 0 {
		t.Errorf("metrics %v, then %v", first.Metrics, last.Metrics)
	}
	if n := computed(append(slices.Clone(sets), "run.steps=32")...); n != 0 {
		t.Errorf("a run that resumed computed them %d times", n)
	}
	file := filepath.Join(out, rundir.TeacherTokensFile)
	text := []byte(testrun.Read(t, file))
	text[len(text)/2] ^= 1
	testrun.Write(t, file, string(text))
	refused(t, out, append(slices.Clone(sets), "run.steps=34"), "the checksum does not match")
}

// TestDistillRefuses: a teacher that does not fit is an error of its key.
func TestDistillRefuses(t *testing.T) {
	sets := distillSets(t)
	for name, tt := range map[string]struct {
		sets []string
		want string
	}{
		"another vocabulary": {[]string{"model.vocab=300"}, "has a vocabulary of 256 tokens, but the model has 300"},
		"no teacher":         {[]string{"distill.from=" + filepath.Join(t.TempDir(), "none")}, "distill.from"},
		"too many tokens":    {[]string{"distill.top_k=300"}, "300 tokens of a vocabulary of 256"},
		"a longer context":   {[]string{"model.context=64"}, "distill.from"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, filepath.Join(t.TempDir(), "out"), append(slices.Clone(sets), tt.sets...), tt.want)
		})
	}
}

// refused starts a run that must not begin.
func refused(t *testing.T, out string, sets []string, want string) {
	t.Helper()
	run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{})
	if err == nil {
		_, err = run.Wait()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
