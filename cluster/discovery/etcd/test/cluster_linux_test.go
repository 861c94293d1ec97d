package etcd_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// root is the repository's root folder.
const root = "../../../.."

// log is a process's output.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// process is a running engine.
type process struct {
	*exec.Cmd
	t    *testing.T
	log  *log
	done chan struct{}
}

type engine struct {
	t         *testing.T
	path, dir string
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{t: t, dir: t.TempDir()}
	if e.path = os.Getenv("TROUPE_ENGINE"); e.path == "" {
		e.path = filepath.Join(e.dir, "engine")
		build := exec.Command("go", "build", "-trimpath", "-tags", "nocuda", "-o", e.path, "./cmd/engine")
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return e
}

func (e *engine) start(args ...string) *process {
	e.t.Helper()
	p := &process{Cmd: exec.Command(e.path, args...), t: e.t, log: new(log), done: make(chan struct{})}
	p.Dir, p.Stdout, p.Stderr = e.dir, p.log, p.log
	if err := p.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.done)
		_ = p.Wait()
	}()
	e.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
		if e.t.Failed() {
			e.t.Logf("%q:\n%s", args[:2], p.log)
		}
	})
	return p
}

// ends sends a signal and waits for the end.
func (p *process) ends(s os.Signal) {
	_ = p.Process.Signal(s)
	<-p.done
}

// output runs a command that must succeed, and returns its output.
func (e *engine) output(args ...string) string {
	e.t.Helper()
	cmd := exec.Command(e.path, args...)
	cmd.Dir = e.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		e.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return string(out)
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited two minutes for", what)
		}
	}
}

const config = `
[run]
name = "found"
out = "out"
steps = 1000000
checkpoint_every = 20
eval_every = 0
log_every = 1
[model]
layers = 2
hidden = 16
heads = 2
context = 16
[data]
train = ["text.txt"]
[batch]
sequences = 4
microbatch = 2
[pipeline]
stages = 2
`

// TestCluster: a worker and operators find a coordinator through etcd. The run survives that etcd is down and that the
// coordinator restarts at another port.
func TestCluster(t *testing.T) {
	s, e := newServer(t, nil), newEngine(t)
	for name, content := range map[string]string{"config.toml": config,
		"text.txt": strings.Repeat("the quick brown fox jumps over the lazy dog\n", 100)} {
		if err := os.WriteFile(filepath.Join(e.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := "etcd://127.0.0.1:1," + s.client + "/training" // the first of the servers is gone
	dir, token := filepath.Join(e.dir, "state"), filepath.Join(e.dir, "state", "operator.token")
	steps := func() int {
		content, _ := os.ReadFile(filepath.Join(e.dir, "out", "metrics.jsonl"))
		return bytes.Count(content, []byte("\n"))
	}
	goesOn := func(when string) {
		t.Helper()
		from := steps()
		until(t, fmt.Sprintf("steps after %d, %s", from, when), func() bool { return steps() >= from+50 })
	}
	coordinate := func() *process {
		c := e.start("cluster", "start", "--listen", freePort(t), "--announce", at, "--dir", dir)
		until(t, "the coordinator", func() bool { return strings.Contains(c.log.String(), "on each worker") })
		return c
	}
	before := coordinate()
	if said := before.log.String(); !strings.Contains(said, "--join '"+at+"'") || !strings.Contains(said, "--cluster '"+at+"'") {
		t.Error("it does not say how it is found:", said)
	}
	for _, name := range []string{"a", "b"} {
		e.start("worker", "--join", at, "--token-file", filepath.Join(dir, "worker.token"), "--name", name, "--threads", "1")
	}
	e.output("run", "config.toml", "--cluster", at, "--token-file", token, "--workers", "2", "--detach")
	goesOn("with etcd")
	s.stop()
	goesOn("without etcd")
	s.start()
	goesOn("with etcd again")

	finder := s.open("/training")
	until(t, "the address", func() bool { found, _ := finder.Find(t.Context()); return len(found) == 1 })
	before.ends(syscall.SIGKILL)
	eventually(t, finder) // it has died: its lease ends
	after := coordinate()
	goesOn("with the coordinator elsewhere")
	if said := e.output("status", "--cluster", at, "--token-file", token); !strings.Contains(said, "found") {
		t.Error("the run is not there:", said)
	}
	e.output("stop", "found", "--cluster", at, "--token-file", token)
	after.ends(syscall.SIGTERM)
	eventually(t, finder) // it has ended, and is not known any more
}
