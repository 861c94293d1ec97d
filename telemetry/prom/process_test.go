package prom

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/troupe-ml/troupe/telemetry/health"
	"github.com/troupe-ml/troupe/telemetry/process"
)

// TestProcess: the metrics of a coordinator and of a worker are served beside those of runs, and their names pass
// Prometheus's own checks. The health of the process is served, and "/" says where.
func TestProcess(t *testing.T) {
	coordinator := process.Coordinator{Build: "b1", Workers: []process.Member{{Name: "w0", Busy: true, Heard: time.Second},
		{Name: "w1", Ahead: -time.Millisecond}, {Name: "w1"}}, Rejected: 1, Joins: 4, Left: 1, Failed: 2,
		Runs: map[string]int{"running": 3}, Restarts: 5, Tokens: map[string]int{"worker": 6}, Frozen: 7}
	worker := process.Worker{Build: "b1", Joined: true, Joins: 2, Heard: 500 * time.Millisecond,
		Ranks: []process.Rank{{Rank: "0", MemoryBytes: 8}, {Rank: "1"}}, Lanes: []process.Lane{{Peer: "w1", Sent: 9, Received: 10}}}
	for name, of := range map[string]struct {
		metrics Metrics
		want    []string
	}{
		"coordinator": {NewProcess(process.CoordinatorFigures, func() process.Coordinator { return coordinator }), []string{
			`engine_build_info{build="b1"} 1`, `engine_cluster_workers{state="busy"} 1`, `engine_cluster_workers{state="free"} 2`,
			`engine_cluster_workers_rejected 1`, `engine_cluster_worker_joins_total 4`, `engine_cluster_worker_departures_total 1`,
			`engine_cluster_worker_failures_total 2`, `engine_cluster_worker_heartbeat_age_seconds{worker="w0"} 1`,
			`engine_cluster_worker_clock_offset_seconds{worker="w1"} -0.001`, `engine_cluster_runs{state="running"} 3`,
			`engine_cluster_run_restarts_total 5`, `engine_cluster_tokens{role="worker"} 6`, `engine_cluster_last_freeze_seconds 7`,
			`engine_loss{run="a"} 3.5`}},
		"worker": {NewProcess(process.WorkerFigures, func() process.Worker { return worker }), []string{
			`engine_worker_joined 1`, `engine_worker_joins_total 2`, `engine_worker_heartbeat_age_seconds 0.5`, `engine_worker_ranks 2`,
			`engine_worker_rank_memory_bytes{rank="0"} 8`, `engine_worker_sent_bytes_total{peer="w1"} 9`,
			`engine_worker_received_bytes_total{peer="w1"} 10`}},
	} {
		c := NewCollector()
		add(t, c, "a", source{}).Observe(step(1, 1000))
		c.Include(of.metrics)
		h := health.New(name)
		s, err := ServeAll("127.0.0.1:0", false, Served{Collector: c, Health: h})
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		text := get(t, client, s.URL(), "")
		for _, line := range of.want {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s: %s is missing:\n%s", name, line, text)
			}
		}
		if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", name, problems, err)
		}
		base := strings.TrimSuffix(s.URL(), Path)
		for path, answer := range map[string]string{"/": health.ReadyPath, health.LivePath: `"ok": true`, health.ReadyPath: "503"} {
			if got := get(t, client, base+path, ""); !strings.Contains(got, answer) {
				t.Errorf("%s: %s answers %.200q", name, path, got)
			}
		}
		if got := get(t, client, base+health.LivePath, "evil.example"); !strings.Contains(got, "403") {
			t.Errorf("asked as evil.example it answers %.80q", got)
		}
		s.Close()
	}
}
