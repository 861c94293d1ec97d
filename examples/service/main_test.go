package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cli"
)

// What the test binary is, where it is not the tests.
const (
	asService = "TROUPE_EXAMPLE_SERVICE"
	asEngine  = "TROUPE_EXAMPLE_ENGINE"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asService) != "":
		main()
		os.Exit(0)
	case os.Getenv(asEngine) != "":
		cli.Main()
	}
	os.Exit(m.Run())
}

// patience is how long a busy machine may take for a step of a test.
const patience = 2 * time.Minute

// output is what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// process is a service, in a process of its own.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	errs  output
	ended chan error
	url   string
	dir   string
}

// start starts one, and ends it with the test.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan error, 1), dir: t.TempDir()}
	p.cmd = exec.Command(os.Args[0], append([]string{"--listen", "127.0.0.1:0", "--dir", p.dir}, args...)...)
	p.cmd.Env = append(os.Environ(), asService+"=1", "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() { p.ended <- p.cmd.Wait() }() // ends with the process
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("the service writes\n%s", &p.errs)
		}
	})
	if address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on "); ok {
		p.url = "http://" + address
		return p
	}
	t.Fatalf("it writes %q, %v", line, err)
	return nil
}

// end tells it to end, and waits until it has.
func (p *process) end() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("the service has ended with %v", err)
		}
	case <-time.After(patience):
		p.t.Fatalf("it has not ended after %v", patience)
	}
}

// ask sends a request, whose answer must have a status; 0: any.
func (p *process) ask(method, path, body string, want int) map[string]any {
	p.t.Helper()
	v, err := p.try(method, path, body, want)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// try is ask for other goroutines than the test's.
func (p *process) try(method, path, body string, want int) (map[string]any, error) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	var v map[string]any
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil || want != 0 && resp.StatusCode != want {
		return v, fmt.Errorf("%s %s: %s, %w: %s", method, path, resp.Status, err, b)
	}
	if resp.StatusCode >= 400 && v["error"] == "" {
		return v, fmt.Errorf("%s %s: %s without a reason: %s", method, path, resp.Status, b)
	}
	return v, nil
}

// begin begins a run on the text.
func (p *process) begin(sets ...string) (id string) {
	p.t.Helper()
	id, _ = p.ask("POST", "/runs?"+strings.Join(sets, "&"), text, http.StatusCreated)["id"].(string)
	if id == "" {
		p.t.Fatal("a run without a name")
	}
	return id
}

// text is what runs learn.
var text = strings.Repeat("the troupe plays a piece, and each plays a part of it. ", 200)

// small makes a run's steps short.
var small = []string{"model.hidden=16", "model.heads=2", "model.context=16", "run.eval_batches=1"}

// endless is a run that ends when it is told to.
func endless(more ...string) []string {
	return append(append([]string{"run.steps=10000000", "run.checkpoint_every=0", "run.eval_every=0"}, small...), more...)
}

// message is a server-sent event.
type message struct {
	id   string
	kind string
	data map[string]any
	raw  string // data as it came
	beat bool   // it is none but a heartbeat
}

// follow reads a run's events behind one, until ok or the end of the stream.
func (p *process) follow(id, last string, ok func(message) bool) (all []message) {
	p.t.Helper()
	all, err := p.read("GET", "/runs/"+id+"/events", "", last, ok)
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

func (p *process) read(method, path, body, last string, ok func(message) bool) (all []message, err error) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return nil, fmt.Errorf("%s: %s, %s", path, resp.Status, kind)
	}
	// A stream that says nothing any more ends the test, not the test binary.
	watch := time.AfterFunc(patience, func() { _ = resp.Body.Close() })
	defer watch.Stop()
	var m message
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			m.id = value
		case "event":
			m.kind = value
		case "data":
			m.raw = value
			if err := json.Unmarshal([]byte(value), &m.data); err != nil {
				return all, fmt.Errorf("%s: %w: %q", path, err, value)
			}
		case "":
			if m.kind != "" || strings.HasPrefix(lines.Text(), ": ") {
				m.beat = m.kind == ""
				all = append(all, m)
				if ok(m) {
					return all, nil
				}
			}
			m = message{}
		}
	}
}

// kind is whether an event is of a kind.
func kind(k string) func(message) bool { return func(m message) bool { return m.kind == k } }

// step is whether an event is of a step, or a later one.
func step(n float64) func(message) bool {
	return func(m message) bool { s, _ := m.data["step"].(float64); return m.kind == "step" && s >= n }
}
