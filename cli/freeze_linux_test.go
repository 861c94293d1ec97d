package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFrozenCoordinator: a coordinator that is stopped and continued, as by a laptop's lid, keeps its workers and its run,
// although they were silent for longer than the silence. Meanwhile the worker says that it is not ready.
func TestFrozenCoordinator(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	dir := workdir(t)
	c := startEngine(t, dir, "cluster", "start", "--listen", "127.0.0.1:0", "--dir", "state", "--silence-s", "2", "--metrics", "127.0.0.1:0")
	c.prints(`(?m)^for Prometheus: +http://.*/metrics$`)
	out, err := os.ReadFile(c.out)
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`http://[0-9.:]+/metrics`).FindString(string(out))
	address, err := os.ReadFile(filepath.Join(dir, "state", "address"))
	if err != nil {
		t.Fatal(err)
	}
	join := strings.TrimSpace(string(address))
	w := startEngine(t, dir, "worker", "--join", join, "--token-file", "state/worker.token", "--name", "w0", "--threads", "1", "--metrics",
		"127.0.0.1:0")
	w.says("engine: metrics are at ")
	_, worker, _ := strings.Cut(strings.TrimSpace(w.said.String()), "metrics are at ")
	ready := strings.TrimSuffix(worker, "/metrics") + "/readyz"
	awaitMetrics(t, ready, `member of the cluster`)
	startEngine(t, dir, "run", "tiny.toml", "--cluster", join, "--dir", "state", "--workers", "1", "--set", "run.steps=1000000",
		"--detach").ends(exitOK)
	awaitMetrics(t, url, `^engine_steps_total\{run="tiny-[0-9a-f]{8}"\} [1-9]`)

	c.signal(syscall.SIGSTOP)
	time.Sleep(4 * time.Second) // of real time: the system does not run it
	awaitMetrics(t, ready, `has been silent for [0-9.]+ s`)
	c.signal(syscall.SIGCONT)

	awaitMetrics(t, ready, `member of the cluster at .* with 2 ranks`)
	awaitMetrics(t, url, `^engine_cluster_last_freeze_seconds [3-9]`)
	awaitMetrics(t, url, `^engine_cluster_worker_failures_total 0$`)
	awaitMetrics(t, url, `^engine_restarts_total\{run="tiny-[0-9a-f]{8}"\} 0$`)
	awaitMetrics(t, url, `^engine_rank_state\{rank="0",run="tiny-[0-9a-f]{8}",state=".*"\} 1$`)
	c.signal(syscall.SIGTERM)
	c.ends(exitOK)
	w.signal(syscall.SIGTERM)
	_ = w.cmd.Wait()
}
