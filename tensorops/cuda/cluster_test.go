//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/tensorops/cuda"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// workerOf makes a process of this test binary a worker: its name, an address, threads, and a
// file for the number of pieces, and of tensors between peers, that it has copied.
const workerOf = "TROUPE_TEST_WORKER"

func init() { // before any test
	if given := os.Getenv(workerOf); given != "" {
		if err := work(strings.Fields(given)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// work computes ranks until the standard input ends.
func work(given []string) error {
	in := bufio.NewReader(os.Stdin)
	text, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	token, err := cluster.ParseToken(text)
	if err != nil {
		return err
	}
	threads, err := strconv.Atoi(given[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process that has started this one
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	err = cluster.Work(ctx, cluster.WorkerConfig{Name: given[0], Join: given[1], Token: token, Threads: threads})
	if path := os.Getenv("TROUPE_LIBCUDA"); err == nil && path != "" {
		l, err := standin.Open(path)
		if err != nil {
			return err
		}
		// Nothing but pieces waits for a whole stream as long as nothing fails.
		return os.WriteFile(given[3], fmt.Append(nil, l.Calls("cuStreamSynchronize"), l.Calls("cuMemcpyPeerAsync")), 0o600)
	}
	return err
}

// TestTrainsInProcesses: a pipeline whose stages are in worker processes, each with a stand-in
// for a GPU, has the bits of the same run in this process.
func TestTrainsInProcesses(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	folder, emulated := t.TempDir(), os.Getenv(realGPU) == ""
	if emulated {
		useStandIn(t)
	}
	l := workers(t, 2, folder)
	defer func() {
		l.Close()
		for i := range 2 {
			if pieces, peers, err := copied(folder, i); emulated && (err != nil || pieces == 0 || peers != 0) {
				t.Errorf("worker %d has copied %d pieces, %d tensors between peers, %v", i, pieces, peers, err)
			}
		}
	}()
	for _, m := range l.Members() {
		if len(m.Devices) == 0 || m.Devices[0].Kind != "cuda" || m.Devices[0].MemoryBytes <= 0 ||
			!strings.HasPrefix(m.Devices[0].Kernels, "cuda-") {
			t.Errorf("worker %s offers %+v", m.Name, m.Devices)
		}
	}
	for _, sets := range [][]string{
		{"pipeline.stages=2", "device.kind=cuda"}, // its embeddings are tied
		{"pipeline.stages=2", "device.kind=cuda", "pipeline.schedule=zb-v", "model.family=llama"},
		{"pipeline.stages=2", `device.ranks=["cuda", "cpu"]`},
		{"pipeline.stages=2", "device.kind=cuda", "device.dtype=bfloat16", "device.residual=bfloat16"},
	} {
		want, here, _ := trainIn(t, filepath.Join(t.TempDir(), "out"), sets...)
		got, info, _ := trainWith(t, troupe.Options{Hosts: l.Hosts()}, filepath.Join(t.TempDir(), "out"), sets...)
		if !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%q: losses %v, in one process %v", sets, got, want)
		}
		if info.Kernels != here.Kernels || info.Device != here.Device {
			t.Errorf("%q: %s with %s, in one process %s with %s", sets, info.Device, info.Kernels, here.Device, here.Kernels)
		}
	}
}

// TestGPUsAreNotReplaced: a run with ranks on GPUs of which a worker fails resumes from its last checkpoint, with the same bits, and says
// why the worker was not replaced.
func TestGPUsAreNotReplaced(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	if os.Getenv(realGPU) == "" {
		useStandIn(t)
	}
	var mu sync.Mutex
	last := make(map[string]*exec.Cmd) // by worker
	l := workersWith(t, 2, t.TempDir(), func(name string, c *exec.Cmd) {
		mu.Lock()
		defer mu.Unlock()
		last[name] = c
	})
	defer l.Close()
	sets := []string{"pipeline.stages=2", "device.kind=cuda", `cluster.shadow="auto"`, "run.checkpoint_every=1"}
	want, _, _ := trainIn(t, filepath.Join(t.TempDir(), "out"), sets...)
	run, err := troupe.Start(t.Context(), smallModel(t, filepath.Join(t.TempDir(), "out"), sets...), troupe.Options{Hosts: l.Hosts()})
	if err != nil {
		t.Fatal(err)
	}
	losses, why := make(map[int]float64), ""
	for e := range run.Events() {
		switch e := e.(type) {
		case troupe.StepEvent:
			if e.Loss == nil {
				continue
			}
			if losses[e.Step] = *e.Loss; e.Step == 2 && why == "" {
				mu.Lock()
				err := last["worker-1"].Process.Kill()
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		case troupe.RestartEvent:
			why += e.Why
		case troupe.ReplaceEvent:
			t.Errorf("ranks %d are replaced from their %s", e.Ranks, e.Source)
		}
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(why, "stage 0 is on a GPU") {
		t.Errorf("the restart says %q", why)
	}
	for i, loss := range want {
		if losses[i+1] != loss {
			t.Errorf("the loss of step %d is %v, in one process %v", i+1, losses[i+1], loss)
		}
	}
}

// workers are some processes of this test binary on this machine. They write what they have copied into the folder.
func workers(t *testing.T, n int, folder string) *cluster.Local {
	t.Helper()
	return workersWith(t, n, folder, func(string, *exec.Cmd) {})
}

// workersWith is workers that calls a function with the command of each process before it starts.
func workersWith(t *testing.T, n int, folder string, begins func(name string, c *exec.Cmd)) *cluster.Local {
	t.Helper()
	l, err := cluster.NewLocal(t.Context(), cluster.LocalConfig{Workers: n, Threads: 2, Silence: 20 * time.Second, Lease: 30 * time.Second,
		Command: func(ctx context.Context, name, join string, threads int) *exec.Cmd {
			c := exec.CommandContext(ctx, os.Args[0])
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %s", workerOf, name, join, threads, filepath.Join(folder, name)))
			c.Stderr = os.Stderr
			begins(name, c)
			return c
		}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// copied is what a worker that has ended has copied.
func copied(folder string, worker int) (pieces, peers int64, err error) {
	text, err := os.ReadFile(filepath.Join(folder, fmt.Sprint("worker-", worker)))
	if err == nil {
		_, err = fmt.Sscan(string(text), &pieces, &peers)
	}
	return pieces, peers, err
}

// TestTrainsOnGPUsOfWorkers: workers offer each GPU of their host, ranks are placed on all of them, and what
// crosses within a worker is copied from GPU to GPU; the bits are those of the same run in this process.
func TestTrainsOnGPUsOfWorkers(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	onGPUs(t, 3, true)
	sets := []string{"pipeline.stages=3", "pipeline.layout=Et|t|L", "device.kind=cuda", "run.steps=2"}
	want, here, _ := trainIn(t, filepath.Join(t.TempDir(), "out"), sets...)
	if here.Device != "cuda:0, cuda:1, cuda:2" {
		t.Errorf("in one process the run is on %s", here.Device)
	}
	folder := t.TempDir()
	l := workers(t, 2, folder)
	closed := sync.OnceFunc(l.Close)
	defer closed()
	for _, m := range l.Members() {
		if len(m.Devices) != 3 || m.Devices[0].ID == m.Devices[2].ID {
			t.Errorf("worker %s offers %+v", m.Name, m.Devices)
		}
	}
	for _, more := range [][]string{
		nil, // by memory: one worker has two GPUs, the other one
		{`device.ranks=["cuda:2", "cuda:0", "cuda:1"]`, `cluster.place=["worker-0", "worker-0", "worker-1"]`},
	} {
		all := append(sets, more...)
		if more != nil {
			all = append(sets[:2:2], append(more, sets[3:]...)...)
		}
		got, info, _ := trainWith(t, troupe.Options{Hosts: l.Hosts()}, filepath.Join(t.TempDir(), "out"), all...)
		if !slices.Equal(got, want) || len(got) == 0 || info.Kernels != here.Kernels {
			t.Errorf("%q: losses %v with %s, in one process %v with %s", more, got, info.Kernels, want, here.Kernels)
		}
	}
	_, err := troupe.Start(t.Context(), smallModel(t, filepath.Join(t.TempDir(), "out"), "device.kind=cuda:1"),
		troupe.Options{Hosts: l.Hosts()})
	if err == nil || !strings.Contains(err.Error(), "but on which worker?") {
		t.Errorf("a GPU of no worker: %v", err)
	}
	closed()
	var sum int64
	for i := range 2 {
		pieces, peers, err := copied(folder, i)
		if err != nil || pieces == 0 {
			t.Errorf("worker %d has copied %d pieces, %v", i, pieces, err)
		}
		sum += peers
	}
	if sum < 2*2*2*2 { // in both runs an activation and a gradient of 2 microbatches in 2 steps
		t.Errorf("%d tensors were copied between peers", sum)
	}
}
