//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops/cuda"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// onGPUs has the stand-in have so many devices, which have access to each other's memory or not.
func onGPUs(t *testing.T, n int, peers bool) *standin.Library {
	t.Helper()
	l := useStandIn(t)
	t.Setenv("TROUPE_LIBCUBLASLT", "none")
	t.Setenv(standin.DevicesVariable, fmt.Sprint(n))
	t.Setenv(standin.PeersVariable, "0")
	if peers {
		t.Setenv(standin.PeersVariable, "1")
	}
	return l
}

// trained is what is compared of a run: its losses, and the files of its last checkpoint that have
// weights and the optimizer's state.
type trained struct {
	losses []float64
	files  [2][]byte
	device string
}

// trainOn runs a small model, or goes on with it, on GPUs.
func trainOn(t *testing.T, out string, sets ...string) trained {
	t.Helper()
	losses, info, warnings := trainIn(t, out, append([]string{"batch.microbatch=1", "optimizer.decay=constant"}, sets...)...)
	is := trained{losses: losses, device: info.Device}
	if !strings.HasPrefix(info.Kernels, "cuda-") || strings.Contains(info.Kernels, "rank") {
		t.Errorf("%q: it computes with %s", sets, info.Kernels)
	}
	apart := 0 // GPUs without access to each other's memory, of two
	if os.Getenv(standin.PeersVariable) == "0" && strings.Contains(info.Device, ", ") {
		apart = 1
	}
	if len(warnings) != apart || apart > 0 && !strings.Contains(warnings[0], "cuda:0 and cuda:1") {
		t.Errorf("%q on %s: warnings %q", sets, info.Device, warnings)
	}
	for i, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		var err error
		if is.files[i], err = os.ReadFile(filepath.Join(out, "checkpoints", "step-"+fmt.Sprintf("%08d", info.Steps), name)); err != nil {
			t.Fatal(err)
		}
	}
	return is
}

// same compares two runs to the bit.
func (is trained) same(t *testing.T, what string, want trained) {
	t.Helper()
	if !slices.Equal(is.losses, want.losses) || len(is.losses) == 0 {
		t.Errorf("%s: losses %v, want %v", what, is.losses, want.losses)
	}
	for i, name := range []string{"weights", "state of the optimizer"} {
		if !bytes.Equal(is.files[i], want.files[i]) {
			t.Errorf("%s: other %s", what, name)
		}
	}
}

// TestTrainsOnGPUs: stages on two devices, whose embeddings are tied, have the bits of one stage on
// one device under every schedule, whether the devices have access to each other's memory or not.
func TestTrainsOnGPUs(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	onGPUs(t, 1, true)
	const two = `device.ranks=["cuda:0", "cuda:1"]`
	steps := "run.steps=2"
	plain := trainOn(t, filepath.Join(t.TempDir(), "out"), "device.kind=cuda", steps)
	for i, schedule := range scheduler.Schedules() {
		if schedule == scheduler.None {
			continue // of one stage
		}
		for _, peers := range []bool{true, false} {
			if !long && peers == (i%3 == 2) { // each schedule once: the way of a copy does not depend on it
				continue
			}
			what := fmt.Sprintf("%s with peers %v", schedule, peers)
			l := onGPUs(t, 2, peers)
			before := l.Calls("cuMemcpyPeerAsync")
			got := trainOn(t, filepath.Join(t.TempDir(), "out"), two, steps, "pipeline.stages=2", "pipeline.schedule="+schedule)
			got.same(t, what, plain)
			copies := l.Calls("cuMemcpyPeerAsync") - before
			// An activation and a gradient of each of 4 microbatches, and tied gradients.
			if peers != (copies >= 2*2*4+2*2) || !peers && copies > 0 || got.device != "cuda:0, cuda:1" {
				t.Errorf("%s: %d copies between peers on %s", what, copies, got.device)
			}
		}
	}
}

// TestTrainsOnGPUsAlike: the same with what else crosses, with ranks of a grid, which are spread, and
// with more devices and fewer.
func TestTrainsOnGPUsAlike(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	for _, c := range []struct {
		sets   []string
		gpus   int
		device string
		long   bool
	}{
		{[]string{"pipeline.stages=2", "device.dtype=bfloat16", "device.residual=bfloat16", "pipeline.recompute=full"}, 2, "cuda:0, cuda:1",
			false},
		{[]string{"pipeline.stages=2", "model.family=llama", "model.mtp_layers=1", "model.tie_embeddings=true"}, 2, "cuda:0, cuda:1", true},
		{[]string{"pipeline.stages=4"}, 2, "cuda:0, cuda:1", true},
		{[]string{"pipeline.stages=4"}, 3, "cuda:0, cuda:1, cuda:2", false},
		{[]string{"pipeline.stages=2", "optimizer.name=sgd"}, 5, "cuda:0, cuda:1", true},
		{[]string{"parallel.data=2"}, 2, "cuda:0, cuda:1", true},
		{[]string{"parallel.data=2", "parallel.zero=1"}, 2, "cuda:0, cuda:1", false},
		{[]string{"parallel.data=4", "parallel.zero=2", "model.hidden=128", "model.layers=8"}, 2, "cuda:0, cuda:1", true},
		{[]string{"parallel.data=2", "parallel.zero=3", "model.hidden=128", "model.layers=8"}, 2, "cuda:0, cuda:1", true},
		{[]string{"parallel.tensor=2"}, 2, "cuda:0, cuda:1", false},
		{[]string{"parallel.tensor=2", "parallel.sequence=true", "pipeline.stages=2"}, 4, "cuda:0, cuda:1, cuda:2, cuda:3", true},
		{[]string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "pipeline.schedule=zb-v"}, 2, "cuda:0, cuda:1", true},
	} {
		if c.long && !long {
			continue
		}
		sets := append(c.sets, "device.kind=cuda", "run.steps=2")
		onGPUs(t, 1, true)
		want := trainOn(t, filepath.Join(t.TempDir(), "out"), sets...)
		if want.device != "cuda" {
			t.Errorf("on one GPU it is on %s", want.device)
		}
		for _, peers := range []bool{true, false} {
			if !peers && c.gpus > 2 {
				continue
			}
			onGPUs(t, c.gpus, peers)
			got := trainOn(t, filepath.Join(t.TempDir(), "out"), sets...)
			got.same(t, fmt.Sprintf("%q on %d GPUs with peers %v", c.sets, c.gpus, peers), want)
			if got.device != c.device {
				t.Errorf("%q on %d GPUs: it is on %s, want %s", c.sets, c.gpus, got.device, c.device)
			}
		}
	}
}

// TestGoesOnOnOtherGPUs: what was trained on two devices goes on on one, and the other way round, as if
// nothing had happened.
func TestGoesOnOnOtherGPUs(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	onGPUs(t, 2, true)
	one, two := []string{"device.kind=cuda:1"}, []string{"pipeline.stages=2", `device.ranks=["cuda:1", "cuda"]`}
	want := trainOn(t, filepath.Join(t.TempDir(), "out"), append(one, "run.steps=2")...)
	if want.device != "cuda:1" {
		t.Errorf("it is on %s", want.device)
	}
	for _, parts := range [][2][]string{{one, two}, {two, one}} {
		out := filepath.Join(t.TempDir(), "out")
		first := trainOn(t, out, append(parts[0], "run.steps=1")...)
		second := trainOn(t, out, append(parts[1], "run.steps=2")...)
		second.losses = append(first.losses, second.losses...)
		second.same(t, fmt.Sprintf("%q, then %q", parts[0], parts[1]), want)
	}
}

// TestGPUNotThere: a GPU that isn't there is refused before anything begins, with how many there are.
func TestGPUNotThere(t *testing.T) {
	onGPUs(t, 2, true)
	for _, set := range []string{"device.kind=cuda:2", `device.ranks=["cuda:1", "cuda:2"]`} {
		cfg, err := config.Parse("gpus.toml", []byte("data.train = ['a.txt']\npipeline.stages = 2"), []string{set}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := device.OpenSet(cfg)
		key, _, _ := strings.Cut(set, "=")
		if s != nil || err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(),
			"device 2 was requested, but the driver sees 2") {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestEndsOnGPUs: however a run on two devices ends, nothing is left on either.
func TestEndsOnGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, c := range []struct {
		name  string
		peers bool
		do    func(l *standin.Library, run *troupe.Run) // at the end of the second step
		err   string
	}{
		{"killed", true, func(_ *standin.Library, run *troupe.Run) { run.Kill() }, "the run was killed"},
		{"killed, by way of the host", false, func(_ *standin.Library, run *troupe.Run) { run.Kill() }, "the run was killed"},
		{"a copy refused", true, func(l *standin.Library, _ *troupe.Run) { l.Fail("cuMemcpyPeerAsync", 3, 1) },
			"cuMemcpyPeerAsync: CUDA_ERROR_INVALID_VALUE"},
		{"a fetch refused", false, func(l *standin.Library, _ *troupe.Run) { l.Fail("cuMemcpyDtoHAsync_v2", 5, 1) },
			"cuMemcpyDtoHAsync_v2: CUDA_ERROR_INVALID_VALUE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := onGPUs(t, 2, c.peers)
			l.Delay(200)
			run, err := troupe.Start(t.Context(), smallModel(t, filepath.Join(t.TempDir(), "out"), "run.steps=1000", "pipeline.stages=2",
				"device.kind=cuda", "pipeline.schedule=zb-v"), troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			steps := 0
			for e := range run.Events() {
				if _, ok := e.(troupe.StepEvent); ok {
					if steps++; steps == 2 {
						c.do(l, run)
					}
				}
			}
			if _, err := run.Wait(); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("the run ends with %v, want %q", err, c.err)
			}
			if m := run.Memory("cuda"); m.InUse != 0 || m.Pooled != 0 {
				t.Errorf("%+v are left", m)
			}
			for _, kind := range standin.Kinds {
				if n := l.Left(kind); n != 0 {
					t.Errorf("%d %s were not given back", n, kind)
				}
			}
		})
	}
}

// TestGraphsOnGPUs: what crosses changes no address of what a chunk's passes take, so that they are launched
// as graphs on two devices as on one.
func TestGraphsOnGPUs(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	for _, peers := range []bool{true, false} {
		l := onGPUs(t, 2, peers)
		launched, made := l.Calls("cuGraphLaunch"), l.Calls("cuGraphInstantiateWithFlags")
		trainOn(t, filepath.Join(t.TempDir(), "out"), "device.kind=cuda", "pipeline.stages=2", "run.steps=8")
		launched, made = l.Calls("cuGraphLaunch")-launched, l.Calls("cuGraphInstantiateWithFlags")-made
		t.Logf("peers %v: %d graphs were made and %d launched", peers, made, launched)
		if made > launched/4 {
			t.Errorf("peers %v: %d graphs were made and %d launched", peers, made, launched)
		}
	}
}
