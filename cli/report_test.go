package cli

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/show/term"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestReport shows one run in every way and compares the output with testdata/report.
func TestReport(t *testing.T) {
	wide := func() int { return 120 }
	for _, c := range []struct {
		name  string
		width func() int
		flags runFlags
	}{
		{"plain", nil, runFlags{}},
		{"quiet", nil, runFlags{quiet: true}},
		{"json", nil, runFlags{json: true}},
		{"terminal", wide, runFlags{}},
		{"terminal_narrow", func() int { return 60 }, runFlags{}},
		{"terminal_quiet", wide, runFlags{quiet: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen strings.Builder
			clock := time.Unix(0, 0)
			a := &app{out: &stream{w: &seen}, err: &seen, width: c.width, now: func() time.Time { return clock }}
			cfg := &config.Config{}
			cfg.Run.LogEvery = 2
			play(a.newReporter(nil, cfg.Run.LogEvery, c.flags), func() { clock = clock.Add(40 * time.Millisecond) })
			// An arrow stands for the sequence that returns to the start of the line and clears it.
			compare(t, filepath.Join("testdata", "report", c.name+".txt"), strings.ReplaceAll(seen.String(), "\r\x1b[K", "←\n"))
		})
	}
}

// play shows a run of seven steps that is stopped. tick advances the clock.
func play(show reporter, tick func()) {
	info := troupe.Info{Name: "small", Out: "runs/small", Family: "gpt2", Parameters: 1234567, Vocab: 256, TrainTokens: 40000, ValTokens: 4000,
		EpochWindows: 312, EpochSteps: 39, Epochs: 25.641,
		EvalWindows: 16, Steps: 1000, ResumedAt: 100, Schedule: "interleaved", Stages: 2, Chunks: 4, Microbatches: 8, Layout: "Et|t|t|tL",
		BubblePct: 11.1, PeakInFlight: []int{5, 3}, Device: "cpu", Threads: 2, Kernels: "avx2",
		Ranks: 4, Grid: "4 ranks, tp 1 × cp 1 × pp 2 × dp 2 in the order tp-cp-pp-dp: groups pp 2 of 2, dp 2 of 2"}
	show.begin(info)
	show.event(troupe.WarningEvent{Text: "skipping a damaged checkpoint"})
	for i := range 7 {
		tick()
		show.event(step(101 + i))
	}
	show.event(troupe.CheckpointEvent{Step: 107, Dir: "runs/small/checkpoints/step-00000107", Best: true, Took: 12 * time.Millisecond})
	show.event(troupe.StallEvent{Quiet: time.Minute, Status: event.Status{}})
	show.notice("engine: finishing the step\n")
	show.close()
	show.end(troupe.Result{Step: 107, Steps: 1000, Stopped: true, FirstValLoss: 5.5, LastValLoss: 2.4, BestValLoss: 2.3, BestStep: 90,
		Dir: "runs/small/checkpoints/step-00000107"})
}

// step returns the event of a step: step 104 has a validation, step 105 is skipped.
func step(n int) troupe.StepEvent {
	loss, norm, lr, speed, ms, bubble := 3-float64(n)/1000, 0.9876, 1e-3, 25600.0, 40.0, 21.5
	r := telemetry.Record{Step: n, Loss: &loss, GradNorm: &norm, LR: &lr, Tokens: int64(n) * 1024, TokensPerS: &speed, StepMS: &ms,
		BubblePct: &bubble}
	switch n {
	case 104:
		val := 2.4
		r.ValLoss = &val
	case 105:
		norm = math.Inf(1)
		r.Skipped = true
	}
	return troupe.StepEvent{Record: r, IdealBubblePct: 11.1}
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s", path, got)
	}
}

// TestDevice: the line says what each rank computes on.
func TestDevice(t *testing.T) {
	for _, c := range []struct {
		info troupe.Info
		want string
	}{
		{troupe.Info{Device: "cpu", Threads: 1, Kernels: "avx2"}, "cpu, 1 thread, kernels avx2"},
		{troupe.Info{Device: "cuda", Threads: 1, Kernels: "cuda-sm_90"}, "cuda, kernels cuda-sm_90"},
		{troupe.Info{Device: "cuda", Threads: 1, Kernels: "cuda-sm_90", Auto: "took cuda:0"}, "cuda, kernels cuda-sm_90; took cuda:0"},
		{troupe.Info{Device: "cuda:0, cuda:1", Threads: 1, Kernels: "cuda-sm_90"}, "cuda:0, cuda:1, kernels cuda-sm_90"},
		{troupe.Info{Device: "cuda, cpu", Threads: 8, Kernels: "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)"},
			"cuda-sm_90 (rank 0), cpu-avx2 (rank 1), 8 threads of the CPU"},
	} {
		if got := deviceLine(c.info); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestClosing(t *testing.T) {
	nan := math.NaN()
	val := 2.5
	for _, c := range []struct {
		name      string
		resumedAt int
		valLoss   *float64
		skipped   int
		res       troupe.Result
		want      string
	}{
		{"done", 0, &val, 0, troupe.Result{Step: 9, Steps: 9, FirstValLoss: 5, LastValLoss: 2.5, BestValLoss: 2.5, BestStep: 6, Dir: "d"},
			"done: step 9/9 in 0ms; validation loss 5.0000 → 2.5000; checkpoint d"},
		{"an earlier one was the best", 0, &val, 1, troupe.Result{Step: 9, Steps: 9, FirstValLoss: 5, LastValLoss: 2.5, BestValLoss: 2,
			BestStep: 6},
			"done: step 9/9 in 0ms; validation loss 5.0000 → 2.5000 (best 2.0000 at step 6); 1 step skipped"},
		{"post-validated", 0, &val, 0, troupe.Result{Step: 200, Steps: 200, FirstValLoss: 5, LastValLoss: 2.5, BestValLoss: 2.5, BestStep: 6,
			Updates: troupe.Updates{Kept: 190, RolledBack: 6, Waited: 4}},
			"done: step 200/200 in 0ms; validation loss 5.0000 → 2.5000; updates: 190 kept, 6 rolled back (3.1%), 4 waited"},
		{"never speculated", 0, &val, 0, troupe.Result{Step: 9, Steps: 9, FirstValLoss: 5, LastValLoss: 2.5, BestValLoss: 2.5, BestStep: 6,
			Updates: troupe.Updates{Waited: 9}},
			"done: step 9/9 in 0ms; validation loss 5.0000 → 2.5000; updates: 0 kept, 0 rolled back (0.0%), 9 waited"},
		{"nothing to do", 9, nil, 0, troupe.Result{Step: 9, Steps: 9, FirstValLoss: 5, LastValLoss: 2.5, BestValLoss: 2.5, BestStep: 9},
			"done: step 9/9; nothing is left to train; raise run.steps to continue; validation loss 5.0000 → 2.5000"},
		{"fewer steps than it has", 9, nil, 0, troupe.Result{Step: 9, Steps: 5, FirstValLoss: 5, LastValLoss: 2.5, BestValLoss: 2.5, BestStep: 9},
			"done: the run has reached step 9; run.steps = 5 is less; nothing is left to train; raise run.steps to continue; validation loss 5.0000 → 2.5000"},
		{"stopped before a second validation", 0, &val, 0, troupe.Result{Step: 3, Steps: 9, Stopped: true, FirstValLoss: 5, LastValLoss: 5,
			BestValLoss: nan},
			"stopped at step 3/9; validation loss before training 5.0000; the same command resumes from there"},
		{"worse than before", 0, &val, 0, troupe.Result{Step: 9, Steps: 9, FirstValLoss: 5, LastValLoss: 45.25, BestValLoss: 4, BestStep: 3},
			"done: step 9/9 in 0ms; validation loss 5.0000 → 45.2500 (best 4.0000 at step 3), above that before training"},
		{"not a number", 0, &nan, 0, troupe.Result{Step: 9, Steps: 9, FirstValLoss: 5, LastValLoss: nan, BestValLoss: nan},
			"done: step 9/9 in 0ms; validation loss 5.0000 → NaN"},
		{"no validation", 0, nil, 0, troupe.Result{Step: 9, Steps: 9, FirstValLoss: nan, LastValLoss: nan, BestValLoss: nan},
			"done: step 9/9 in 0ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &textReporter{app: &app{now: func() time.Time { return time.Time{} }}, info: troupe.Info{Steps: 9, ResumedAt: c.resumedAt},
				valLoss: c.valLoss, skipped: c.skipped}
			if got := strings.Join(r.closing(c.res), "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestModelTextIsHarmlessOnATerminal(t *testing.T) {
	const text = "a\x1b[2Jb\n"
	for terminal, want := range map[bool]string{false: text, true: "a\uFFFD[2Jb\n"} {
		var b strings.Builder
		a := &app{out: &stream{w: &b}, terminal: terminal}
		if n, err := a.programs().Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("wrote %d bytes, error %v", n, err)
		}
		if b.String() != want {
			t.Errorf("on a terminal %v: %q, want %q", terminal, b.String(), want)
		}
	}
	if term.Width(&strings.Builder{}) != nil {
		t.Error("a buffer is taken for a terminal")
	}
}
