package life

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// tenRunsEnv, when it is set, makes the test binary train ten times in the folder that it
// names, and print the peak memory of each run.
const tenRunsEnv = "TROUPE_TEST_TEN_RUNS"

// mediumRun has some 200 MiB of tensors, beside which what the runtime takes more or less of
// from run to run is little, and a step takes little.
const mediumRun = `
[run]
steps = 1
eval_every = 1
eval_batches = 1
checkpoint_every = 0

[model]
layers = 8
hidden = 320
heads = 4
context = 32
dropout = 0.1

[data]
train = ["testdata/troupe.txt"]

[batch]
sequences = 4
microbatch = 2

[pipeline]
stages = 2
`

// tenRuns prints a line for each run: its peak of resident bytes, and the bytes of tensors
// that it left.
func tenRuns(dir string, to io.Writer) (exitCode int) {
	for i := range 10 {
		// The kernel's mark of the peak begins again with what is resident now.
		err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
		if err == nil {
			var left int64
			left, err = trainMedium(filepath.Join(dir, fmt.Sprint(i)))
			fmt.Fprintln(to, sysinfo.PeakBytes(), left)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func trainMedium(out string) (leftBytes int64, err error) {
	cfg, err := config.Parse("medium.toml", []byte(mediumRun), []string{"run.out=" + out}, nil)
	if err != nil {
		return 0, err
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		return 0, err
	}
	_, err = run.Wait()
	m := run.Memory("cpu")
	return m.InUse + m.Pooled, err
}

// TestTenRuns: a process that trains ten times needs for the last what it needed for the
// first. One run's peak moves by some MiB with when the garbage is collected, so the lowest
// of the last five is held against the lowest of the first five.
func TestTenRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a run's own peak of memory can be told on Linux alone")
	}
	if testrun.RaceDetector {
		t.Skip("the race detector has memory of its own")
	}
	cmd := exec.Command(os.Args[0])
	// With less garbage on the heap, the peaks of equal runs differ by 0.4 % instead of 3 %.
	cmd.Env = append(os.Environ(), tenRunsEnv+"="+t.TempDir(), "GOGC=20")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	lines, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var peaks []int64
	for s := bufio.NewScanner(strings.NewReader(string(lines))); s.Scan(); {
		var peak, left int64
		if _, err := fmt.Sscan(s.Text(), &peak, &left); err != nil || left != 0 {
			t.Errorf("run %d leaves %d bytes of tensors, %v", len(peaks)+1, left, err)
		}
		peaks = append(peaks, peak)
	}
	t.Logf("peaks in KiB: %d", kib(peaks))
	if len(peaks) != 10 {
		t.Fatalf("%d runs of ten", len(peaks))
	}
	first, last := slices.Min(peaks[:5]), slices.Min(peaks[5:])
	if first < 100<<20 || float64(last) > 1.03*float64(first) {
		t.Errorf("the lowest peak is %d KiB of the first five runs, %d of the last five", first>>10, last>>10)
	}
}

func kib(bytes []int64) (out []int64) {
	for _, b := range bytes {
		out = append(out, b>>10)
	}
	return out
}

// TestNothingIsOpen: what a run, an evaluation or a generation has opened, mapped and
// started is closed, unmapped and ended when it returns, however it ends.
func TestNothingIsOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what is open and mapped is read from /proc")
	}
	dir := t.TempDir()
	ids := func(name string, add uint16) string {
		var b []byte
		for _, c := range []byte(testrun.Read(t, "testdata/troupe.txt")) {
			b = binary.LittleEndian.AppendUint16(b, uint16(c)+add)
		}
		return testrun.Write(t, filepath.Join(dir, name), string(b))
	}
	asIDs := []string{"data.format=uint16", "data.tokenizer=bytes", "data.train=" + ids("ids", 0)}
	strange := []string{"data.format=uint16", "data.tokenizer=bytes", "data.train=" + ids("strange", 200)}
	model := filepath.Join(dir, "model")
	testrun.Train(t, model, "data.tokenizer=bytes")
	runs := 0
	// use starts a run and ends it; a nil err is a good end.
	use := func(err error, end func(*troupe.Run), sets ...string) func(t *testing.T) {
		return func(t *testing.T) {
			runs++
			run, got := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(dir, fmt.Sprint(runs)), sets...), troupe.Options{})
			if got == nil {
				if end != nil {
					testrun.Until(t, run, testrun.Step(1))
					end(run)
				}
				_, got = run.Wait()
				if m := run.Memory("cpu"); m.InUse != 0 || m.Pooled != 0 || m.Peak == 0 && err == nil {
					t.Errorf("%+v are left", m)
				}
			}
			if !errors.Is(got, err) {
				t.Errorf("it ends with %v, want %v", got, err)
			}
		}
	}
	for _, c := range []struct {
		name string
		use  func(t *testing.T)
	}{
		{"finished", use(nil, nil, asIDs...)},
		{"from a model", use(nil, nil, "model.from="+model, "pipeline.stages=2")},
		{"from a model, on ids", use(nil, nil, append(asIDs, "model.from="+model)...)},
		{"stopped", use(nil, (*troupe.Run).Stop, append(asIDs, testrun.Endless...)...)},
		{"killed", use(actors.ErrKilled, (*troupe.Run).Kill, append(asIDs, testrun.Endless...)...)},
		{"an id that the vocabulary does not have", use(data.ErrVocab, nil, append(strange, "model.vocab=210")...)},
		{"resumed", func(t *testing.T) {
			use(nil, nil, append(asIDs, "run.steps=3", "optimizer.decay=constant", "pipeline.stages=2", "pipeline.post_validation=true")...)(t)
			runs--
			use(nil, nil, append(asIDs, "run.steps=5", "optimizer.decay=constant")...)(t)
		}},
		{"refused when all is open", func(t *testing.T) {
			testrun.SetFreeMemory(t, 1<<10)
			use(troupe.ErrMemory, nil, append(asIDs, "model.from="+model)...)(t)
		}},
		{"cancelled before it starts", func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			run, err := troupe.Start(ctx, testrun.NewConfig(t, filepath.Join(dir, "cancelled"), append(asIDs, testrun.Endless...)...),
				troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			result, err := run.Wait()
			if m := run.Memory("cpu"); err != nil || !result.Stopped || m.InUse != 0 || m.Pooled != 0 {
				t.Errorf("it ends with %+v, %v; %+v are left", result, err, m)
			}
		}},
		{"evaluation", func(t *testing.T) {
			o := troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: model}, Data: []string{filepath.Join(dir, "ids")}, Format: "uint16"}
			if _, err := troupe.Evaluate(context.Background(), o); err != nil {
				t.Error(err)
			}
		}},
		{"generation", func(t *testing.T) {
			o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: model}, TextOptions: troupe.TextOptions{Tokens: 30}}
			if err := troupe.Generate(context.Background(), o, func([]byte) error { return nil }); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			c.use(t)
			goleak.VerifyNone(t, before)
			for _, what := range openIn(t, dir) {
				t.Errorf("left: %s", what)
			}
		})
	}
}

// openIn lists the files of a folder that this process has open or mapped.
func openIn(t *testing.T, dir string) (found []string) {
	t.Helper()
	for _, line := range strings.Split(testrun.Read(t, "/proc/self/maps"), "\n") {
		if strings.Contains(line, dir) {
			found = append(found, "mapped "+line)
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		// That of the listing itself is gone.
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(to, dir) {
			found = append(found, "open "+to)
		}
	}
	return found
}

// TestBeginningIsClosed: the checkpoint that a run's weights came from is not held on to
// while it trains, so that its space is given back when it is removed.
func TestBeginningIsClosed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what is open is read from /proc")
	}
	base := testrun.Trained(t)
	for name, begin := range map[string]struct {
		out  string
		sets []string
	}{
		"resumed":    {base, nil},
		"model.from": {filepath.Join(t.TempDir(), "out"), []string{"model.from=" + base}},
	} {
		t.Run(name, func(t *testing.T) {
			run := testrun.Start(t, testrun.NewConfig(t, begin.out, append(begin.sets, "run.steps=1000", "run.eval_every=0",
				"run.checkpoint_every=0", "pipeline.stages=2")...))
			testrun.Until(t, run, testrun.Step(8))
			run.Pause()
			if open := openIn(t, testrun.StepDir(base, 6)); len(open) > 0 {
				t.Errorf("%v", open)
			}
			run.Kill()
			if _, err := run.Wait(); !errors.Is(err, actors.ErrKilled) {
				t.Error(err)
			}
		})
	}
}

// TestLifeInACallersSystem: two runs at a time in a caller's actor system train as they do
// alone, and leave the system to its own actors.
func TestLifeInACallersSystem(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
	defer system.Shutdown()
	echo := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if m, ok := ctx.Message().(string); ok {
			ctx.Respond(m)
		}
	}))
	defer func() {
		if err := system.Root.StopFuture(echo).Wait(); err != nil {
			t.Error(err)
		}
	}()
	configs := [][]string{{"pipeline.stages=2"}, {"pipeline.stages=1", "run.seed=7"}}
	var runs []*troupe.Run
	var outs []string
	for _, sets := range configs {
		out := filepath.Join(t.TempDir(), "out")
		run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{System: system, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		runs, outs = append(runs, run), append(outs, out)
	}
	for i, run := range runs {
		testrun.Finish(t, run)
		alone := filepath.Join(t.TempDir(), "alone")
		testrun.Train(t, alone, configs[i]...)
		testrun.SameFigures(t, alone, outs[i])
	}
	if m, err := system.Root.RequestFuture(echo, "there?", time.Minute).Result(); err != nil || m != "there?" {
		t.Errorf("the caller's actor answers %v, %v", m, err)
	}
}
