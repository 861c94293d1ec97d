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
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/tensorops/cuda"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// workerOf makes a process of this test binary a worker: its name, an address, threads, and a
// file for the number of pieces that it has copied.
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
		return os.WriteFile(given[3], []byte(strconv.FormatInt(l.Calls("cuStreamSynchronize"), 10)), 0o600)
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
	pieces := func(worker string) string { return filepath.Join(folder, worker) }
	l, err := cluster.NewLocal(t.Context(), cluster.LocalConfig{Workers: 2, Threads: 2, Silence: 20 * time.Second, Lease: 30 * time.Second,
		Command: func(ctx context.Context, name, join string, threads int) *exec.Cmd {
			c := exec.CommandContext(ctx, os.Args[0])
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %s", workerOf, name, join, threads, pieces(name)))
			c.Stderr = os.Stderr
			return c
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		l.Close()
		for i := range 2 {
			n, err := os.ReadFile(pieces(fmt.Sprint("worker-", i)))
			if emulated && (err != nil || string(n) == "0") {
				t.Errorf("worker %d has copied %s pieces, %v", i, n, err)
			}
		}
	}()
	for _, m := range l.Members() {
		if len(m.Devices) == 0 || m.Devices[0].Kind != "cuda" || m.Devices[0].MemoryBytes <= 0 || !strings.HasPrefix(m.Devices[0].Kernels, "cuda-") {
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
