//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/tensorops/cuda"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// useAuto makes device.kind = "auto" find the stand-in, whose self-tests are short: of as many cases
// as there are kinds of operations.
func useAuto(t *testing.T) *standin.Library {
	t.Helper()
	if cuda.RaceDetector {
		t.Skip("it is about numbers, which take long; the device's own tests have its goroutines")
	}
	l := useStandIn(t)
	t.Cleanup(l.Reset)
	limit, patience, cases, driver := device.SelfTestTime, device.SelfTestPatience, device.SelfTestCases, device.DriverFile
	t.Cleanup(func() {
		device.SelfTestTime, device.SelfTestPatience, device.SelfTestCases, device.DriverFile = limit, patience, cases, driver
	})
	device.SelfTestTime, device.SelfTestPatience, device.SelfTestCases = time.Hour, time.Hour, fewCases
	device.DriverFile = filepath.Join(t.TempDir(), "version")
	if err := os.WriteFile(device.DriverFile, []byte("NVRM version 550.54\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// verdicts are the files of the folder that self-tests are kept in.
func verdicts(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "troupe", "selftest", pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// keepVerdict changes the one that is kept.
func keepVerdict(t *testing.T, change func(map[string]any)) {
	t.Helper()
	files := verdicts(t, "*.json")
	if len(files) != 1 {
		t.Fatalf("%d verdicts are kept: %q", len(files), files)
	}
	text, err := os.ReadFile(files[0])
	v := make(map[string]any)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	change(v)
	if text, err2 := json.Marshal(v); errors.Join(err, err2) != nil || os.WriteFile(files[0], text, 0o600) != nil {
		t.Fatal(err, err2)
	}
}

// resolved is what "auto" comes to, with some keys set.
func resolved(t *testing.T, ctx context.Context, test bool, sets ...string) (says,
	kind string) {
	t.Helper()
	cfg, err := config.Parse("auto", []byte(`data.train = ["a"]`), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	gpu, says := device.ResolveAuto(ctx, cfg, test)
	return says, device.KindOf(cfg.WithAutoGPU(gpu), 0)
}

// TestAuto: a GPU is taken that passes its self-test, which is made once for a driver.
func TestAuto(t *testing.T) {
	useAuto(t)
	for _, sets := range [][]string{{"device.kind=cpu"}, {"device.threads=1"}, {"device.kernels=go"}, {`device.ranks=["cpu"]`}} {
		if says, kind := resolved(t, t.Context(), true, sets...); says != "" || kind != device.CPU || len(verdicts(t, "*")) != 0 {
			t.Errorf("%v: %s, %q", sets, kind, says)
		}
	}
	const untested = "has not been tested yet"
	if says, kind := resolved(t, t.Context(), false); kind != device.CPU || !strings.Contains(says, untested) ||
		!strings.Contains(device.AutoState(), untested) {
		t.Errorf("before a self-test: %s, %q", kind, says)
	}
	device.SelfTestTime = time.Nanosecond // too short for any
	if says, kind := resolved(t, t.Context(), true); kind != device.CPU || !strings.Contains(says, "after 0 of ") ||
		!strings.Contains(says, "deadline") {
		t.Errorf("without time: %s, %q", kind, says)
	}
	for _, file := range verdicts(t, "*") {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}

	device.SelfTestTime = time.Hour
	says, kind := resolved(t, t.Context(), true)
	if kind != device.CUDA || !strings.HasPrefix(says, "using cuda:0 (stand-in, cuda-sm_90-cublaslt-12.4 kernels) after a self-test of ") ||
		!strings.Contains(says, " cases in ") {
		t.Fatalf("%s, %q", kind, says)
	}
	t.Log(says)
	if len(verdicts(t, "*.json")) != 1 || len(verdicts(t, "*")) != 1 {
		t.Errorf("kept are %q", verdicts(t, "*"))
	}
	// It is not made again, nor by ranks whose kind is auto.
	keepVerdict(t, func(v map[string]any) { v["cases"] = 12345 })
	for _, sets := range [][]string{nil, {`device.ranks=["auto"]`}} {
		if says, kind := resolved(t, t.Context(), false, sets...); kind != device.CUDA ||
			!strings.Contains(says, "which passed a self-test of 12345 cases on 20") {
			t.Errorf("%v, from a kept verdict: %s, %q", sets, kind, says)
		}
	}
	if !strings.Contains(device.AutoState(), "12345 cases") {
		t.Errorf("the state is %q", device.AutoState())
	}
	// Another driver has another verdict, and so has another library for products.
	if err := os.WriteFile(device.DriverFile, []byte("NVRM version 551.00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if says, kind := resolved(t, t.Context(), false); kind != device.CPU || !strings.Contains(says, untested) {
		t.Errorf("with another driver: %s, %q", kind, says)
	}
	if err := os.WriteFile(device.DriverFile, []byte("NVRM version 550.54\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TROUPE_LIBCUBLASLT", "none")
	if says, kind := resolved(t, t.Context(), false); kind != device.CPU || !strings.Contains(says, untested) {
		t.Errorf("without cuBLASLt: %s, %q", kind, says)
	}
}

// fewCases are one of each kind of operation, and some.
const fewCases = 60

// TestAutoFails: a GPU that computes wrongly, fails or has no end is left out, with the reason, and
// a run goes on on the CPU.
func TestAutoFails(t *testing.T) {
	l := useAuto(t)
	l.Wrong(1e-3)
	losses, info, warnings := trainIn(t, filepath.Join(t.TempDir(), "out"), "device.kind=auto")
	if len(losses) != 4 || len(warnings) != 0 || info.Device != "cpu" || !strings.Contains(info.Auto, "): case matmul/") ||
		!strings.Contains(info.Auto, "elements of float32") ||
		!strings.HasSuffix(info.Auto, "; using the CPU") || strings.Contains(info.Auto, "\n") {
		t.Errorf("%d losses on %s, warnings %q: %s", len(losses), info.Device, warnings, info.Auto)
	}
	t.Log(info.Auto)
	// That is kept too: the GPU does not compute rightly the next time.
	l.Reset()
	if says, kind := resolved(t, t.Context(), true); kind != device.CPU || !strings.Contains(says, "failed its self-test on 20") ||
		!strings.Contains(says, "case matmul/") {
		t.Errorf("%s, %q", kind, says)
	}
	remove := func() {
		for _, file := range verdicts(t, "*") {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove()
	// A kernel that fails breaks the context.
	l.Fail("task", 3, 719)
	if says, kind := resolved(t, t.Context(), true); kind != device.CPU || !strings.Contains(says, "CUDA_ERROR_LAUNCH_FAILED") {
		t.Errorf("with a broken context: %s, %q", kind, says)
	}
	l.Reset()
	remove()
	// One that was interrupted says nothing of the GPU.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if says, kind := resolved(t, ctx, true); kind != device.CPU || !strings.Contains(says, "context canceled") || len(verdicts(t, "*")) != 0 {
		t.Errorf("interrupted: %s, %q, kept are %q", kind, says, verdicts(t, "*"))
	}
	// One that took its process along would do so again.
	device.SelfTestTime = time.Nanosecond
	resolved(t, t.Context(), true)
	kept := verdicts(t, "*.json")
	if len(kept) != 1 {
		t.Fatalf("kept are %q", kept)
	}
	begun := strings.TrimSuffix(kept[0], ".json") + ".begun"
	const none = 1 << 30 // no process has that number
	if err := errors.Join(os.Remove(kept[0]), os.WriteFile(begun, []byte(strconv.Itoa(none)), 0o600)); err != nil {
		t.Fatal(err)
	}
	if says, kind := resolved(t, t.Context(), true); kind != device.CPU || !strings.Contains(says, "did not finish (remove "+begun) {
		t.Errorf("after a crash: %s, %q", kind, says)
	}
	if err := os.WriteFile(begun, []byte(strconv.Itoa(os.Getppid())), 0o600); err != nil {
		t.Fatal(err)
	}
	if says, _ := resolved(t, t.Context(), false); !strings.Contains(says, "has not been tested yet") {
		t.Errorf("while another process tests it: %q", says)
	}
}

// TestAutoRuns: a run takes the GPU, says so, and has the losses that it has with "cuda"; where the
// GPU can't do it, or has no room, it goes on on the CPU.
func TestAutoRuns(t *testing.T) {
	l := useAuto(t)
	resolved(t, t.Context(), true)
	want := train(t, "device.kind=cuda")
	losses, info, warnings := trainIn(t, filepath.Join(t.TempDir(), "out"), "device.kind=auto")
	if info.Device != "cuda" || !strings.HasPrefix(info.Auto, "using cuda:0 (stand-in") || len(warnings) != 0 {
		t.Errorf("on %s, warnings %q: %s", info.Device, warnings, info.Auto)
	}
	for i := range want {
		if losses[i] != want[i] {
			t.Errorf("losses %v, with cuda %v", losses, want)
			break
		}
	}
	l.Memory(64 << 20) // what streams take in any case is half of it
	_, info, _ = trainIn(t, filepath.Join(t.TempDir(), "out"), "device.kind=auto", "model.hidden=512")
	if info.Device != "cpu" || !strings.Contains(info.Auto, "not using the GPU: ") ||
		!strings.Contains(info.Auto, troupe.ErrMemory.Error()) {
		t.Errorf("without room: on %s: %s", info.Device, info.Auto)
	}
}
