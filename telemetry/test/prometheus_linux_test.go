package metrics_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

const monitoring = root + "/examples/deploy/monitoring"

// served is what a run over two processes serves once a step was recorded, validated and saved.
func served(t *testing.T) string {
	t.Helper()
	p := start(t, folder(t), "run", "tiny.toml", "--metrics", "127.0.0.1:0", "--set", "run.steps=1000000", "--set", "run.keep=2",
		"--local-cluster", "2")
	text := scrape(t, p.says("engine: metrics are at "), "engine_last_checkpoint_step", "engine_rank_bubble_ratio", "engine_validation_loss",
		`engine_rank_wait_seconds`)
	p.stop()
	return text
}

// servedCluster is what a coordinator and a worker with ranks serve.
func servedCluster(t *testing.T) (coordinator, worker string) {
	t.Helper()
	dir, at := folder(t), free(t)
	c := start(t, dir, "cluster", "start", "--listen", "127.0.0.1:0", "--dir", "state", "--metrics", at)
	address := ""
	for began := time.Now(); address == ""; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(dir, "state", "address"))
		if _, err := os.Stat(filepath.Join(dir, "state", "operator.token")); err == nil {
			address = strings.TrimSpace(string(text))
		}
		if time.Since(began) > patience {
			t.Fatal("the coordinator does not start")
		}
	}
	w := start(t, dir, "worker", "--join", address, "--token-file", "state/worker.token", "--name", "w0", "--threads", "1", "--metrics",
		"127.0.0.1:0")
	url := w.says("engine: metrics are at ")
	engine(t, dir, "run", "tiny.toml", "--cluster", address, "--dir", "state", "--workers", "1", "--set", "run.steps=1000000", "--set",
		"run.keep=2", "--detach")
	coordinator = scrape(t, "http://"+at+"/metrics", `engine_cluster_workers{state="busy"} 1`, "engine_cluster_worker_clock_offset_seconds{")
	worker = scrape(t, url, "engine_worker_rank_memory_bytes{", "engine_worker_received_bytes_total{")
	for _, p := range []*process{w, c} {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	return coordinator, worker
}

// free is an address that nobody listens at.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was written
	return l.Addr().String()
}

// TestPromtool: promtool finds nothing in what a run serves, nor in the rules and the scrape
// configuration of the examples.
func TestPromtool(t *testing.T) {
	tool := os.Getenv("PROMTOOL")
	if tool == "" {
		tool = program(t, buildPromtool)
	}
	// Of one process, with what its ranks take of memory, and of two.
	p := start(t, folder(t), "run", "tiny.toml", "--metrics", "127.0.0.1:0", "--set", "run.steps=1000000", "--set", "run.keep=2")
	one := scrape(t, p.says("engine: metrics are at "), "engine_last_checkpoint_step", "engine_rank_memory_bytes")
	p.stop()
	coordinator, worker := servedCluster(t)
	for _, text := range []string{one, served(t), coordinator, worker} {
		check := exec.Command(tool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		out, err := check.CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
		t.Logf("promtool check metrics has nothing to say of %d lines", strings.Count(text, "\n"))
	}
	out, err := exec.Command(tool, "check", "config", filepath.Join(monitoring, "prometheus.yml")).CombinedOutput()
	if err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
	t.Logf("promtool check config:\n%s", out)
	out, err = exec.Command(tool, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(monitoring, "rules.yml")).CombinedOutput()
	if err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
	t.Logf("promtool check rules:\n%s", out)
}

// families are the metrics of real runs, each with its labels.
func families(t *testing.T) map[string]map[string]bool {
	t.Helper()
	text := served(t)
	p := start(t, folder(t), "run", "tiny.toml", "--metrics", "127.0.0.1:0", "--set", "run.steps=1000000", "--set", "run.keep=2")
	text2 := scrape(t, p.says("engine: metrics are at "), "engine_last_checkpoint_step", "engine_rank_memory_bytes")
	p.stop()
	// A model with figures of its own, and one with multi-token prediction.
	dir := folder(t)
	var rows strings.Builder
	rows.WriteString("a,b,label\n")
	for i := range 40 {
		fmt.Fprintf(&rows, "%d,%d,%d\n", i%7, i%3, i%2)
	}
	if err := os.WriteFile(filepath.Join(dir, "data.csv"), []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	mlp := `[run]
name = "mlp"
steps = 1000000
eval_every = 2
keep = 2
checkpoint_every = 1000
[model]
family = "mlp"
layers = 2
hidden = 4
[data]
train = ["data.csv"]
format = "csv"
label = "label"
[batch]
sequences = 4
[pipeline]
stages = 2
`
	if err := os.WriteFile(filepath.Join(dir, "mlp.toml"), []byte(mlp), 0o644); err != nil {
		t.Fatal(err)
	}
	p = start(t, dir, "run", "mlp.toml", "--metrics", "127.0.0.1:0")
	text3 := scrape(t, p.says("engine: metrics are at "), "engine_metric{", "engine_validation_metric{")
	p.stop()
	p = start(t, dir, "run", "tiny.toml", "--metrics", "127.0.0.1:0", "--set", "run.steps=1000000", "--set", "model.mtp_layers=1", "--set",
		"pipeline.stages=1")
	text4 := scrape(t, p.says("engine: metrics are at "), "engine_mtp_loss{")
	p.stop()

	coordinator, worker := servedCluster(t)
	all := make(map[string]map[string]bool)
	for _, page := range []string{text, text2, text3, text4, coordinator, worker} {
		parse := expfmt.NewTextParser(model.UTF8Validation)
		found, err := parse.TextToMetricFamilies(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		for name, family := range found {
			names := []string{name}
			if strings.Contains(page, "# TYPE "+name+" histogram\n") {
				names = []string{name + "_bucket", name + "_sum", name + "_count"}
			}
			for _, n := range names {
				if all[n] == nil {
					all[n] = map[string]bool{"job": true, "instance": true} // which Prometheus adds
				}
				for _, m := range family.Metric {
					for _, l := range m.Label {
						all[n][l.GetName()] = true
					}
				}
				if strings.HasSuffix(n, "_bucket") {
					all[n]["le"] = true
				}
			}
		}
	}
	return all
}

// checkExpr parses an expression, and holds its metrics and labels against those that runs have.
func checkExpr(t *testing.T, where, expr string, has map[string]map[string]bool, used map[string]bool) {
	t.Helper()
	plain := regexp.MustCompile(`\$__rate_interval|\$__interval`).ReplaceAllString(expr, "5m")
	plain = regexp.MustCompile(`\$(run|job)\b`).ReplaceAllString(plain, ".*")
	if strings.Contains(plain, "$") {
		t.Errorf("%s: %s has a variable that the dashboard lacks", where, expr)
	}
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(plain)
	if err != nil {
		t.Errorf("%s: %s: %v", where, expr, err)
		return
	}
	known := make(map[string]bool) // labels of any metric of the expression
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if has[v.Name] == nil {
			t.Errorf("%s: %s: no run has the metric %s", where, expr, v.Name)
			return nil
		}
		used[v.Name] = true
		maps.Copy(known, has[v.Name])
		for _, m := range v.LabelMatchers {
			if m.Name != labels.MetricName && !has[v.Name][m.Name] {
				t.Errorf("%s: %s: %s has no label %s", where, expr, v.Name, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		var grouping []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			grouping = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouping = slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include)
			}
		}
		for _, l := range grouping {
			if !known[l] {
				t.Errorf("%s: %s: no metric in it has the label %s", where, expr, l)
			}
		}
		return nil
	})
}

// bySchema holds a dashboard against Grafana's schema: no field is unknown or missing, also in what
// is a kind of panel's own.
func bySchema(text []byte) error {
	var board dashboard.Dashboard
	for _, check := range []func() error{func() error { return board.UnmarshalJSONStrict(text) }, board.Validate} {
		err := check()
		// What finds nothing returns an empty list, which is no nil.
		if list := (cog.BuildErrors)(nil); err != nil && !(errors.As(err, &list) && len(list) == 0) {
			return err
		}
	}
	return nil
}

// TestDashboard: Grafana's schema takes the dashboard whole, and every expression is of metrics
// and labels that runs have. All of a run's metrics are shown somewhere, but for a few.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoring, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	plugins.RegisterDefaultPlugins()
	if err := bySchema(text); err != nil {
		t.Fatalf("Grafana's schema: %v", err)
	}
	for good, bad := range map[string]string{`"gridPos"`: `"gridPositions"`, `"graphMode": "none"`: `"graphMode": 7`,
		`"drawStyle": "line"`: `"drawStyle": {}`} {
		if bySchema([]byte(strings.Replace(string(text), good, bad, 1))) == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
	has, used := families(t), make(map[string]bool)

	// What the schema can't say.
	var plain struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Annotations struct {
			List []struct{ Expr, TextFormat string }
		}
	}
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	ids := make(map[int]bool)
	for i, p := range plain.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: the id %d is there twice, or none", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: it is at %+v of 24 columns", p.Title, g)
		}
		for _, q := range plain.Panels[:i] {
			if o := q.GridPos; g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("%s lies over %s", p.Title, q.Title)
			}
		}
		if p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d has no title or shows nothing", p.ID)
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if refs[target.RefID] {
				t.Errorf("%s: two queries %s", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			checkExpr(t, p.Title, target.Expr, has, used)
			for _, l := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(has)), func(name string) bool {
					return strings.Contains(target.Expr, name) &&
						has[name][l[1]]
				}) {
					t.Errorf("%s: no metric of %s has the label %s of its legend", p.Title, target.Expr, l[1])
				}
			}
		}
	}
	for _, a := range plain.Annotations.List {
		checkExpr(t, "an annotation", a.Expr, has, used)
	}
	for _, v := range plain.Templating.List {
		if v.Definition == "" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil || !has[m[1]][m[2]] {
			t.Errorf("the variable %s is %s", v.Name, v.Definition)
		}
	}

	rules, err := os.ReadFile(filepath.Join(monitoring, "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(string(rules), -1) {
		checkExpr(t, "rules.yml", m[1], has, used)
	}

	// What is a description of the run, or told by others.
	aside := []string{"engine_run_info", "engine_ranks", "engine_stages", "engine_parameters", "engine_steps_total",
		"engine_checkpoint_duration_seconds_bucket", "engine_step_duration_seconds_sum", "engine_step_duration_seconds_count", "engine_paused",
		"engine_build_info"}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if strings.HasPrefix(name, "engine_") && !used[name] && !slices.Contains(aside, name) {
			t.Errorf("%s is shown nowhere", name)
		}
	}
}

var legend = regexp.MustCompile(`\{\{(\w+)\}\}`)
