package metrics_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// readBoard is TensorBoard's own reader: it prints {tag: [[step, value], …]} and the texts.
const readBoard = `
import json, sys
from tensorboard.backend.event_processing import event_accumulator
a = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
a.Reload()
tags = a.Tags()
print(json.dumps({
    "scalars": {t: [[e.step, repr(e.value)] for e in a.Scalars(t)] for t in tags["scalars"]},
    "texts": {t: [[e.step, e.tensor_proto.string_val[0].decode()] for e in a.Tensors(t)] for t in tags["tensors"]},
    "plugins": {t: a.SummaryMetadata(t).plugin_data.plugin_name for t in tags["tensors"]},
}))
`

type shown struct {
	Scalars map[string][][2]any
	Texts   map[string][][2]any
	Plugins map[string]string
}

// board is what TensorBoard shows of a folder.
func board(t *testing.T, python, dir string) (s shown) {
	t.Helper()
	cmd := exec.Command(python, "-c", readBoard, dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("TensorBoard reads %s: %v\n%s", dir, err, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return s
}

// lines are the objects of one of a run's files.
func lines(t *testing.T, run, name string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// wantEqual: TensorBoard shows what the run's own file has, as float32, each step once.
func wantEqual(t *testing.T, s shown, records []map[string]any) {
	t.Helper()
	values := 0
	for tag, key := range map[string]string{"train/loss": "loss", "val/loss": "val_loss", "train/grad_norm": "grad_norm", "train/lr": "lr",
		"speed/tokens_per_s": "tokens_per_s", "speed/step_ms": "step_ms",
		"speed/bubble_pct": "bubble_pct", "speed/peak_pct": "peak_pct", "memory/peak_bytes": "peak_mem_bytes"} {
		var want [][2]float64
		for _, m := range records {
			if v, ok := m[key].(float64); ok {
				want = append(want, [2]float64{m["step"].(float64), float64(float32(v))})
			}
		}
		got := s.Scalars[tag]
		if len(got) != len(want) || len(want) == 0 {
			t.Errorf("%s: TensorBoard has %d steps, metrics.jsonl %d:\n%v\n%v", tag, len(got), len(want), got, want)
			continue
		}
		for i, w := range want {
			var v float64
			if err := json.Unmarshal([]byte(got[i][1].(string)), &v); err != nil {
				t.Fatal(err)
			}
			if got[i][0] != w[0] || math.Float32bits(float32(v)) != math.Float32bits(float32(w[1])) {
				t.Errorf("%s: step %v is %v, in metrics.jsonl step %v is %v", tag, got[i][0], v, w[0], w[1])
			}
			values++
		}
	}
	t.Logf("%d values are equal", values)
}

// TestTensorBoard: TensorBoard reads what a run writes, also one that goes on from an older step,
// and what engine tensorboard makes of metrics.jsonl.
func TestTensorBoard(t *testing.T) {
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	version, err := exec.Command(python, "-c", "import tensorboard; print(tensorboard.__version__)").Output()
	if err != nil {
		t.Skipf("%s has no tensorboard: pip install tensorboard, and give PYTHON=", python)
	}
	t.Logf("TensorBoard %s", bytes.TrimSpace(version))
	dir := folder(t)
	run := filepath.Join(dir, "runs", "tiny")
	engine(t, dir, "run", "tiny.toml", "--set", "telemetry.tensorboard=true", "--set", "run.sample_tokens=5", "--set", "run.sample_prompt=The")
	s := board(t, python, filepath.Join(run, "tensorboard"))
	wantEqual(t, s, lines(t, run, "metrics.jsonl"))
	if got := s.Texts["config"]; s.Plugins["config"] != "text" || len(got) != 1 || !strings.Contains(got[0][1].(string), `    name = "tiny"`) {
		t.Errorf("the configuration is %v of the plugin %q", got, s.Plugins["config"])
	}
	samples := lines(t, run, "samples.jsonl")
	if got := s.Texts["samples"]; s.Plugins["samples"] != "text" || len(samples) < 2 || len(got) != len(samples) {
		t.Errorf("the samples are %v of the plugin %q; samples.jsonl has %v", got, s.Plugins["samples"], samples)
	} else {
		for i, m := range samples {
			text := m["prompt"].(string) + m["text"].(string)
			if got[i][0] != m["step"] || strings.ReplaceAll(got[i][1].(string), "    ", "") != strings.ReplaceAll(text, "    ", "") {
				t.Errorf("TensorBoard has the sample %q, samples.jsonl %v", got[i], m)
			}
		}
	}

	// It goes on from step 4, with another rate: the steps behind are shown as they are now.
	engine(t, dir, "run", "tiny.toml", "--from-step", "4", "--set", "run.steps=11", "--set", "telemetry.tensorboard=true")
	records := lines(t, run, "metrics.jsonl")
	if n := len(records); n != 12 {
		t.Fatalf("metrics.jsonl has %d records", n)
	}
	wantEqual(t, board(t, python, filepath.Join(run, "tensorboard")), records)

	engine(t, dir, "tensorboard", "runs/tiny", "--to", "board")
	wantEqual(t, board(t, python, filepath.Join(dir, "board")), records)
}
