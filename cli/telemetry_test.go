package cli

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// awaitMetrics reads metrics until they match a pattern.
func awaitMetrics(t *testing.T, url, pattern string) {
	t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	var text string
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if text = string(body); re.MatchString(text) {
			return
		}
	}
	t.Fatalf("%s does not come to match %s:\n%s", url, pattern, text)
}

// TestMetrics: a run serves Prometheus while it trains, and ends in order on a signal even while a client requests
// metrics and does not read them.
func TestMetrics(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	p := startEngine(t, workdir(t), "run", "tiny.toml", "--set", "run.steps=1000000", "--metrics", "127.0.0.1:0")
	p.says("engine: metrics are at ")
	_, url, _ := strings.Cut(strings.TrimSpace(p.said.String()), "metrics are at ")
	awaitMetrics(t, url, `^engine_checkpoints_total\{run="tiny"\} [1-9]`)
	awaitMetrics(t, url, `^engine_rank_memory_bytes\{rank="1",run="tiny"\} [1-9]`)
	p.signal(syscall.SIGTERM)
	p.ends(exitTryAgain)
	if _, err := http.Get(url); err == nil { //nolint:bodyclose // there is none
		t.Error("it is served after the end")
	}
}

// TestClusterMetrics: a coordinator serves the metrics of all its runs, and writes and sends the exports that
// their configs ask for.
func TestClusterMetrics(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	dir := workdir(t)
	c := startEngine(t, dir, "cluster", "start", "--listen", "127.0.0.1:0", "--dir", "state", "--silence-s", "20", "--metrics", "127.0.0.1:0")
	c.prints(`(?m)^for Prometheus: +http://.*/metrics$`)
	out, err := os.ReadFile(c.out)
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`http://[0-9.:]+/metrics`).FindString(string(out))
	if err := await(filepath.Join(dir, "state", "operator.token"), "."); err != nil {
		t.Fatal(err)
	}
	address, err := os.ReadFile(filepath.Join(dir, "state", "address"))
	if err != nil {
		t.Fatal(err)
	}
	join := strings.TrimSpace(string(address))
	w := startEngine(t, dir, "worker", "--join", join, "--token-file", "state/worker.token", "--name", "w0", "--threads", "1")
	first := startEngine(t, dir, "run", "tiny.toml", "--cluster", join, "--dir", "state", "--workers", "1", "--set",
		"telemetry.tensorboard=true", "--set", "telemetry.metrics=127.0.0.1:0")
	first.ends(exitOK)
	awaitMetrics(t, url, `^engine_run_state\{run="tiny-[0-9a-f]{8}",state="done"\} 1$`)
	if files, err := filepath.Glob(filepath.Join(dir, "runs", "tiny", "tensorboard", "events.out.tfevents.*")); err != nil || len(files) != 1 {
		t.Errorf("event files: %v, %v", files, err)
	}
	second := startEngine(t, dir, "run", "tiny.toml", "--cluster", join, "--dir", "state", "--set", "run.name=second", "--set",
		"run.steps=1000000", "--detach")
	second.ends(exitOK)
	awaitMetrics(t, url, `^engine_rank_info\{host="w0",name="stage 1",rank="1",run="second-[0-9a-f]{8}"\} 1$`)
	awaitMetrics(t, url, `^engine_steps_total\{run="second-[0-9a-f]{8}"\} [1-9]`)
	c.signal(syscall.SIGTERM)
	c.ends(exitOK)
	w.signal(syscall.SIGTERM)
	_ = w.cmd.Wait()
}
