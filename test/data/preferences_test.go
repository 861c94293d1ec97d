package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// The training of testdata/hf/preferences.py.
const (
	preferenceSteps = 8
	preferenceLR    = 0.05
	preferenceLimit = 2e-5 // of losses and metrics in float32, beside float64
)

// TestPreferencesInTorch is make check-preferences: the losses, validation losses and rewards of each loss are those of PyTorch.
func TestPreferencesInTorch(t *testing.T) {
	python := os.Getenv("TROUPE_PYTHON")
	if python == "" || os.Getenv("TROUPE_PREFERENCES") == "" {
		t.Skip("make check-preferences sets TROUPE_PYTHON, a Python with torch and transformers")
	}
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	testrun.Train(t, base, "model.family=llama", "model.kv_heads=2", "model.dropout=0", "model.context=24", "run.steps=6")
	folder := testrun.StepDir(base, 6)
	train, val := filepath.Join(dir, "train.jsonl"), filepath.Join(dir, "val.jsonl")
	for path, from := range map[string]int{train: 0, val: 8} {
		var pairs, single strings.Builder
		for i := from; i < from+8; i++ {
			prompt := fmt.Sprintf("%d is", i*i%17)
			good, bad := strings.Repeat(" a", i%3+1), strings.Repeat(" odd", i%2+1)[i%3:]
			fmt.Fprintf(&pairs, "{\"prompt\": %q, \"chosen\": %q, \"rejected\": %q}\n", prompt, good, bad)
			fmt.Fprintf(&single, "{\"prompt\": %q, \"completion\": %q, \"label\": %v}\n", prompt, []string{bad, good}[min(i%3, 1)], i%3 > 0)
		}
		testrun.Write(t, path, pairs.String())
		testrun.Write(t, path+".kto", single.String())
	}
	losses := []map[string]any{
		{"loss": "dpo", "beta": 0.3}, {"loss": "dpo", "beta": 0.3, "label_smoothing": 0.2}, {"loss": "ipo", "beta": 0.4},
		{"loss": "orpo", "beta": 0.5}, {"loss": "simpo", "beta": 2.0, "gamma": 0.7},
		{"loss": "kto", "beta": 0.3, "desirable_weight": 1.3, "undesirable_weight": 0.8},
	}
	var stdin, errs bytes.Buffer
	for _, o := range losses {
		if err := json.NewEncoder(&stdin).Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", filepath.Join("testdata", "hf", "preferences.py"), folder, train, val,
		fmt.Sprint(preferenceSteps), fmt.Sprint(preferenceLR))
	cmd.Stdin, cmd.Stderr = &stdin, &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("preferences.py: %v\n%s", err, errs.String())
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for _, o := range losses {
		var want struct {
			Losses    []float64
			ValLosses []float64 `json:"val_losses"`
			Metrics   []map[string]float64
		}
		if err := dec.Decode(&want); err != nil {
			t.Fatal(err)
		}
		data, held := train, val
		if o["loss"] == "kto" {
			data, held = train+".kto", val+".kto"
		}
		run := filepath.Join(t.TempDir(), "run")
		sets := []string{"model.from=" + folder, "model.dropout=0", "data.train=" + data, "data.val=" + held,
			"data.format=documents", "run.eval_every=0",
			fmt.Sprint("run.steps=", preferenceSteps), "batch.sequences=16", "batch.microbatch=16", "optimizer.name=sgd",
			"optimizer.momentum=0",
			fmt.Sprint("optimizer.lr=", preferenceLR), "optimizer.decay=constant", "optimizer.warmup_steps=0", "optimizer.clip_norm=0",
			"optimizer.weight_decay=0", "pipeline.stages=2", "run.eval_batches=1"}
		for key, v := range o {
			sets = append(sets, fmt.Sprintf("preference.%s=%v", key, v))
		}
		testrun.Train(t, run, sets...)
		apart := 0.0
		near := func(what string, got, want float64) {
			d := math.Abs(got-want) / max(1, math.Abs(want))
			if apart = max(apart, d); d > preferenceLimit {
				t.Errorf("%v: %s is %.9g, want %.9g", o, what, got, want)
			}
		}
		all := testrun.Records(t, run)
		near("the first validation loss", *all[0].ValLoss, want.ValLosses[0])
		near("the last validation loss", *all[len(all)-1].ValLoss, want.ValLosses[1])
		for _, r := range all[1:] {
			near(fmt.Sprintf("the loss of step %d", r.Step), *r.Loss, want.Losses[r.Step-1])
			for name, v := range want.Metrics[r.Step-1] {
				near(fmt.Sprintf("%s of step %d", name, r.Step), r.Metrics[name], v)
			}
		}
		t.Logf("%v: %d losses, validation losses and rewards at most %.2g apart", o, preferenceSteps, apart)
	}
}
