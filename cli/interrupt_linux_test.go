package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childrenOf returns the child processes of a process.
func childrenOf(t *testing.T, pid int) (all []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	return all
}

// TestInterruptThenLoss: Ctrl-C stops a run in local worker processes with a checkpoint, even if a worker dies
// right afterwards.
func TestInterruptThenLoss(t *testing.T) {
	times := 1
	if os.Getenv("TROUPE_KILLS") == "1" {
		times = 10
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 4))
	for i := range times {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			dir := workdir(t)
			sets := []string{"run", "tiny.toml", "--local-cluster", "2", "--set", "run.steps=1000000", "--set", "run.checkpoint_every=5", "--set",
				"pipeline.stages=2", "--set", "cluster.silence_s=5"}
			p := startEngine(t, dir, sets...)
			p.prints(`(?m)^checkpoint `)
			workers := childrenOf(t, p.cmd.Process.Pid)
			if len(workers) != 2 {
				t.Fatalf("the engine has the children %v, want 2 workers", workers)
			}
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
			p.signal(syscall.SIGINT)
			time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
			if err := syscall.Kill(workers[random.IntN(2)], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.ends(exitTryAgain)
			p.prints(`(?m)^stopped at step .* checkpoint runs/tiny/checkpoints/step-.*; the same command resumes from there\n\z`)
			again := startEngine(t, dir, sets...)
			again.prints(`(?m)^resumed at step [0-9]+$`)
			again.signal(syscall.SIGINT)
			again.ends(exitTryAgain)
		})
	}
}
