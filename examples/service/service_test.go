package main

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

func skipWithoutSignals(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
}

// TestService drives a run by all that the API has, while another one trains beside it.
func TestService(t *testing.T) {
	skipWithoutSignals(t)
	p := start(t, "--heartbeat", "50ms")
	other := p.begin(endless("run.seed=2", "pipeline.stages=1")...)
	id := p.begin(endless("run.seed=1", "optimizer.warmup_steps=1")...)
	if id == other {
		t.Fatalf("both are %s", id)
	}
	run := "/runs/" + id

	seen := p.follow(id, "", step(3))
	events := 0
	for _, m := range seen {
		if m.beat { // one may come before the first event
			continue
		}
		if events++; m.id != strconv.Itoa(events) {
			t.Errorf("event %d has the id %q", events, m.id)
		}
	}
	p.ask("POST", run+"/pause", "", http.StatusAccepted)
	paused := p.follow(id, seen[len(seen)-1].id, kind("pause"))
	at := paused[len(paused)-1].data["step"]
	status := p.ask("GET", run, "", http.StatusOK)
	if status["state"] != "paused" || status["step"] != at || len(status["waits"].([]any)) == 0 || len(status["actors"].(map[string]any)) < 5 {
		t.Errorf("the status of a run that has paused at step %v is %v", at, status)
	}
	// What is quiet says that it is there.
	p.follow(id, paused[len(paused)-1].id, func(m message) bool { return m.beat })

	// While it rests, the same weights give the same text; also as it comes.
	ask := `{"prompt": "the ", "tokens": 30, "temperature": 0.7, "seed": 5}`
	first := p.ask("POST", run+"/generate", ask, http.StatusOK)
	if first["step"] != at || first["text"] == "" {
		t.Errorf("paused at step %v, it writes %v", at, first)
	}
	pieces, err := p.read("POST", run+"/generate", strings.Replace(ask, "{", `{"stream": true, `, 1), "", kind("done"))
	if err != nil {
		t.Fatal(err)
	}
	var whole strings.Builder
	for _, m := range pieces {
		if m.kind == "text" {
			whole.WriteString(m.data["text"].(string))
		}
	}
	if pieces[0].kind != "step" || pieces[0].data["step"] != at || whole.String() != first["text"] {
		t.Errorf("in pieces it writes %v, at once %v", pieces, first)
	}
	for _, of := range []map[string]any{first, pieces[len(pieces)-1].data} { // what the model saw of the text
		if of["prompt_tokens"] != 4.0 || of["prompt_cut"] != 0.0 || of["tokens"] != 30.0 || of["context"] == 0.0 || of["window_moves"] == nil {
			t.Errorf("the report of a text is missing in %v", of)
		}
	}

	// A browser sees both runs, and may only look.
	shown := p.ask("GET", "/ui/api/runs", "", http.StatusOK)["runs"].([]any)
	if names := fmt.Sprint(shown); len(shown) != 2 || !strings.Contains(names, id) || !strings.Contains(names, other) {
		t.Errorf("the page shows %v", shown)
	}
	p.ask("POST", "/ui/api/runs/"+shown[0].(map[string]any)["id"].(string)+"/change", `{"kind":"stop"}`, http.StatusForbidden)

	p.ask("POST", run+"/checkpoint", "", http.StatusAccepted)
	saved := p.follow(id, paused[len(paused)-1].id, kind("checkpoint"))
	if m := saved[len(saved)-1]; m.data["step"] != at {
		t.Errorf("paused at step %v, it saves %v", at, m.data)
	}
	later := at.(float64) + 5
	p.ask("POST", run+"/rate", fmt.Sprintf(`{"lr": 0.0001, "min_lr": 0.0001, "step": %g}`, later), http.StatusAccepted)
	p.follow(id, saved[len(saved)-1].id, kind("change"))
	p.ask("POST", run+"/resume", "", http.StatusAccepted)
	steps := p.follow(id, saved[len(saved)-1].id, step(later+1))
	for _, m := range steps {
		if s, _ := m.data["step"].(float64); m.kind == "step" && (m.data["lr"] == 0.0001) != (s > later) {
			t.Errorf("the rate changes behind step %g, and step %g has %v", later, s, m.data["lr"])
		}
	}

	// It generates while it trains.
	last := at.(float64)
	for range 3 {
		a := p.ask("POST", run+"/generate", `{"tokens": 20, "max_age_s": 0}`, http.StatusOK)
		if s := a["step"].(float64); s < last {
			t.Errorf("a text of step %g after one of step %g", s, last)
		} else {
			last = s
		}
	}
	if last == at {
		t.Errorf("every text is of step %v", at)
	}

	p.ask("POST", run+"/stop", "", http.StatusAccepted)
	all := p.follow(id, "", func(message) bool { return false })
	end := all[len(all)-1]
	if end.kind != "end" || end.data["stopped"] != true || end.data["checkpoint"] == "" {
		t.Errorf("the last event is %+v", end)
	}
	readBack(t, all)
	if again := p.follow(id, end.id, func(message) bool { return false }); len(again) != 0 {
		t.Errorf("behind the last event come %v", again)
	}
	if a := p.ask("POST", run+"/generate", `{"tokens": 20}`, http.StatusOK); a["step"] != end.data["step"] {
		t.Errorf("it has stopped at step %v, and the text is of step %v", end.data["step"], a["step"])
	}
	p.ask("POST", run+"/pause", "", http.StatusConflict)

	// The other has noticed nothing.
	if s := p.ask("GET", "/runs/"+other, "", http.StatusOK); s["state"] != "running" || s["stages"] != 1.0 || s["out"] == status["out"] {
		t.Errorf("the other one's status is %v", s)
	}
	if n := len(p.ask("GET", "/runs", "", http.StatusOK)["runs"].([]any)); n != 2 {
		t.Errorf("there are %d runs", n)
	}
	p.end()
}

// readBack reads the events of a stream back, in Go and with jq.
func readBack(t *testing.T, all []message) {
	t.Helper()
	var lines, want strings.Builder
	for _, m := range all {
		if m.beat || m.kind == "gap" {
			continue
		}
		e, err := troupe.DecodeEvent([]byte(m.raw))
		if err != nil || troupe.EventKind(e) != m.kind {
			t.Errorf("%s: %s is %+v, %v", m.kind, m.raw, e, err)
		}
		if s, ok := e.(troupe.StepEvent); ok {
			if s.Step > 0 && (s.Loss == nil || *s.Loss != m.data["loss"]) {
				t.Errorf("%s has the loss %v", m.raw, s.Loss)
			}
			fmt.Fprintln(&want, s.Step)
		}
		lines.WriteString(m.raw + "\n")
	}
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Log("jq is not installed")
		return
	}
	cmd := exec.CommandContext(t.Context(), jq, `select(.event == "step") | .step`)
	cmd.Stdin = strings.NewReader(lines.String())
	if got, err := cmd.Output(); err != nil || string(got) != want.String() {
		t.Errorf("jq: %v\n%s\nwant\n%s", err, got, want.String())
	}
}

// TestEndGoesOn: the end of the service leaves checkpoints, from which engine run goes on with
// the bits of runs that nobody has disturbed.
func TestEndGoesOn(t *testing.T) {
	skipWithoutSignals(t)
	p := start(t)
	sets := append([]string{"run.steps=300", "run.eval_every=60"}, small...)
	var ids []string
	for seed := range 2 {
		id := p.begin(append(sets, fmt.Sprintf("run.seed=%d", seed+1), fmt.Sprintf("pipeline.stages=%d", seed+1))...)
		p.follow(id, "", step(5))
		ids = append(ids, id)
	}
	p.end()
	for _, id := range ids {
		folder := filepath.Join(p.dir, id, "run")
		before := records(t, folder)
		if n := before[len(before)-1].Step; n >= 300 {
			t.Logf("%s had ended at step %d: the machine is busy", id, n)
		}
		engine(t, "run", filepath.Join(folder, "config.toml"))
		got := records(t, folder)
		// The same, from the beginning, in another folder.
		alone := filepath.Join(t.TempDir(), "alone")
		engine(t, "run", filepath.Join(folder, "config.toml"), "--set", "run.out="+alone)
		want := records(t, alone)
		if len(got) != len(want) || got[len(got)-1].Step != 300 {
			t.Fatalf("%d lines, of the undisturbed run %d", len(got), len(want))
		}
		for i := range got {
			if a, b := figures(got[i]), figures(want[i]); !reflect.DeepEqual(a, b) {
				t.Fatalf("%s: line %d is %v, of the undisturbed run %v", id, i+1, a, b)
			}
		}
		t.Logf("%s: stopped at step %d, %d lines equal", id, before[len(before)-1].Step, len(got))
	}
}

func engine(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asEngine+"=1", "GORACE=atexit_sleep_ms=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("engine %v: %v\n%s", args, err, out)
	}
}

func records(t *testing.T, folder string) []telemetry.Record {
	t.Helper()
	all, err := telemetry.Read(filepath.Join(folder, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// figures are the parts of a record that don't depend on the clock, to the bit.
func figures(r telemetry.Record) [5]uint64 {
	bits := func(v *float64) uint64 {
		if v == nil {
			return 0
		}
		return math.Float64bits(*v)
	}
	return [5]uint64{uint64(r.Step), bits(r.Loss), bits(r.ValLoss), bits(r.GradNorm), bits(r.LR)}
}

// TestBadInput: what is wrong with a request is told, and the service goes on.
func TestBadInput(t *testing.T) {
	skipWithoutSignals(t)
	p := start(t, "--runs", "2")
	id := p.begin(endless()...)
	p.follow(id, "", step(1))
	run := "/runs/" + id
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/", "", 404, "no such route: GET"},
		{"PUT", "/runs", "", 404, "no such route: PUT"},
		{"GET", "/runs/none", "", 404, "none"},
		{"POST", "/runs/none/stop", "", 404, "none"},
		{"POST", "/runs", "", 400, "text"},
		{"POST", "/runs", "short", 400, "token"},
		{"POST", "/runs?run.stpes=3", text, 400, "stpes"},
		{"POST", "/runs?run.steps=many", text, 400, "run.steps"},
		{"POST", "/runs?run.steps=%zz", text, 400, "query"},
		{"POST", "/runs?model.hidden=30&model.heads=4", text, 400, "heads"},
		{"POST", "/runs?model.hidden=1048576&model.heads=1", text, 400, "memory"},
		{"POST", "/runs?batch.microbatch=3", text, 400, "microbatch"},
		{"POST", "/runs?data.train=[%22/etc/passwd%22]", text, 400, "does not allow the key"},
		{"POST", "/runs?run.out=elsewhere", text, 400, "does not allow the key"},
		{"POST", "/runs?model.from=elsewhere", text, 400, "does not allow the key"},
		{"POST", "/runs?pipeline.schedule=%22/etc/table.csv%22", text, 400, "must not be a file"},
		{"POST", "/runs?pipeline.schedule=%22/etc/table.CSV%22", text, 400, "must not be a file"},
		{"POST", "/runs?pipeline.schedule=%22/etc/table%5Cu002ecsv%22", text, 400, "must not be a file"},
		{"POST", "/runs", `{"text": "`, 400, "JSON"},
		{"POST", "/runs", `{"txt": "x"}`, 400, "txt"},
		{"POST", "/runs", `{"text": "x", "set": {"run.steps": {}}}`, 400, "run.steps"},
		{"POST", "/runs", strings.Repeat("x", limitBodyBytes+1), 413, "large"},
		{"POST", run + "/rate", ``, 400, "learning rate"},
		{"POST", run + "/rate", `{"lr": -1}`, 400, "learning rate"},
		{"POST", run + "/pause", `{"step": -1}`, 400, "-1"},
		{"POST", run + "/pause", `{"lr": 1}`, 400, "pause"},
		{"POST", run + "/pause", `{"kind": "stop"}`, 400, "path"},
		{"POST", run + "/pause", `{} {}`, 400, "unexpected data"},
		{"POST", run + "/generate", ``, 400, "JSON"},
		{"POST", run + "/generate", `{"tokens": 1000000}`, 400, "4096"},
		{"POST", run + "/generate", `{"tokens": -1}`, 400, "-1"},
		{"POST", run + "/generate", `{"temperature": -1}`, 400, "temperature"},
		{"POST", run + "/generate", `{"max_age_s": -1}`, 400, "age"},
		{"POST", run + "/generate", `{"prompt": "` + strings.Repeat("x", limitPromptBytes+1) + `"}`, 400, "prompt"},
		{"POST", run + "/generate", `{"prompt": "` + strings.Repeat("x", limitAskBytes) + `"}`, 413, "large"},
	} {
		got := p.ask(c.method, c.path, c.body, c.status)
		if e, _ := got["error"].(string); !strings.Contains(e, c.says) {
			t.Errorf("%s %.60s %.60s says %q, without %q", c.method, c.path, c.body, e, c.says)
		}
	}
	if req, err := http.NewRequest(http.MethodGet, p.url+run+"/events", nil); err != nil {
		t.Error(err)
	} else {
		req.Header.Set("Last-Event-ID", "last")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("an event's id that is none: %s", resp.Status)
		}
	}
	// What was refused has left no folder.
	folders, err := os.ReadDir(p.dir)
	if err != nil || len(folders) != 1 {
		t.Errorf("the folder has %v, %v", folders, err)
	}
	second := p.begin(endless()...)
	p.ask("POST", "/runs", text, http.StatusTooManyRequests)
	p.ask("POST", "/runs/"+second+"/stop", "", http.StatusAccepted)
	p.follow(second, "", kind("end"))
	p.begin(append([]string{"run.steps=3"}, small...)...)
	p.end()
}

// TestFailure: the service goes on when a run fails, and its status says why.
func TestFailure(t *testing.T) {
	skipWithoutSignals(t)
	p := start(t)
	good := p.begin(endless()...)
	bad := p.begin(endless()...)
	p.follow(bad, "", step(1))
	if err := os.RemoveAll(filepath.Join(p.dir, bad)); err != nil {
		t.Fatal(err)
	}
	p.ask("POST", "/runs/"+bad+"/checkpoint", "", http.StatusAccepted)
	all := p.follow(bad, "", kind("end"))
	if end := all[len(all)-1]; end.data["error"] == nil {
		t.Fatalf("the last event is %+v", end)
	}
	if s := p.ask("GET", "/runs/"+bad, "", http.StatusOK); s["state"] != "failed" ||
		!strings.Contains(s["error"].(string), "checkpoint of step") {
		t.Errorf("the status is %v", s)
	}
	p.ask("POST", "/runs/"+bad+"/generate", `{}`, http.StatusConflict)

	// One that computes no numbers the service's own actor stops.
	wild := p.begin(endless("optimizer.name=sgd", "optimizer.lr=1e6", "optimizer.clip_norm=0", "optimizer.warmup_steps=0")...)
	all = p.follow(wild, "", kind("end"))
	if end := all[len(all)-1]; end.data["stopped"] != true || end.data["error"] != nil {
		t.Errorf("the last event is %+v", end)
	}
	p.ask("POST", "/runs/"+wild+"/generate", `{}`, http.StatusConflict)

	if s := p.ask("GET", "/runs/"+good, "", http.StatusOK); s["state"] != "running" {
		t.Errorf("the status of the good one is %v", s)
	}
	p.end()
}

// TestGap: the log keeps the last events, and says how many it does not.
func TestGap(t *testing.T) {
	l := newEventLog()
	for i := range limitEvents + 10 {
		l.add(troupe.StepEvent{Record: telemetry.Record{Step: i}}, nil)
	}
	events, lost, more := l.after(3)
	if lost != 7 || len(events) != limitEvents || events[0].id != 11 || more == nil {
		t.Errorf("behind event 3 come %d, the first is %d; %d are lost", len(events), events[0].id, lost)
	}
	if events, lost, _ = l.after(limitEvents + 5); lost != 0 || len(events) != 5 {
		t.Errorf("%d come, %d are lost", len(events), lost)
	}
	if events, lost, _ = l.after(1 << 40); lost != 0 || len(events) != 0 {
		t.Errorf("behind an event that there is not: %d come, %d are lost", len(events), lost)
	}
	var all sync.WaitGroup
	all.Add(1)
	go func() { defer all.Done(); <-more }()
	l.add(troupe.EndEvent{}, func(s *state) { s.State = "finished" })
	all.Wait()
	if _, _, more = l.after(0); more != nil {
		t.Error("there is more behind the end")
	}
}
