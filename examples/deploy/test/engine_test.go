//go:build linux

// Package deploy tests the files in its parent folder. It runs their commands as processes, with the environment that each
// system sets, until a small model is trained.
package deploy

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// root is the repository's root folder.
const root = "../../.."

// nobody is the user of the image, and the group of its volumes.
const nobody = 65534

// engine is the program to test: TROUPE_ENGINE, or a new one.
var engine = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("TROUPE_ENGINE"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(binaries, "engine")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "nocuda", "-o", path, "./cmd/engine")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// binaries is the folder of built programs.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "troupe-deploy"); err == nil {
		err = os.Chmod(binaries, 0o755)
	}
	if err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(binaries)
	os.Exit(status)
}

// clusterEngine is a program that has engine cluster start.
func clusterEngine(t *testing.T) string {
	t.Helper()
	path, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "cluster", "start", "--help").CombinedOutput(); err != nil {
		t.Fatalf("engine cluster start --help: %v: %.100s", err, out)
	}
	return path
}

// folder makes a folder that other users can enter, unlike t.TempDir.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "troupe-deploy")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// mkdir makes a folder that belongs to the user nobody, or only to its group, if the test has the rights.
func mkdir(t *testing.T, mode os.FileMode, uid int, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	err := os.MkdirAll(dir, 0o755)
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(dir, uid, nobody)
	}
	if err == nil {
		err = os.Chmod(dir, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// write writes a system's file, which group 65534 may read if mode allows it.
func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	err := os.WriteFile(path, []byte(content), 0o600)
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(path, 0, nobody)
	} else if err == nil {
		mode = mode&0o700 | 0o400 // the test's own user is the process's
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// hosts has loopback addresses that act as hosts.
func hosts(n int) (addresses []string) {
	net := fmt.Sprintf("127.%d.%d", 1+rand.IntN(250), rand.IntN(256))
	for i := range n {
		addresses = append(addresses, fmt.Sprintf("%s.%d", net, i+1))
	}
	return addresses
}

const steps = 400

// training is a config that needs all these workers and trains in a second or two.
func training(out, text string, workers ...string) string {
	return fmt.Sprintf(`
[run]
name = "deployed"
out = %q
steps = %d
eval_batches = 1
eval_every = 100
checkpoint_every = 20
log_every = 50
[model]
layers = 2
hidden = 16
heads = 2
context = 16
[data]
train = [%q]
[batch]
sequences = 4
microbatch = 2
[pipeline]
stages = 2
[cluster]
place = ["%s"]
`, out, steps, text, strings.Join(workers, `", "`))
}

var text = strings.Repeat("the quick brown fox jumps over the lazy dog, and so on and on\n", 100)

// command is a command that a system runs.
type command struct {
	args []string
	env  map[string]string
	dir  string
	// asNobody: as user and group 65534, where the test may.
	asNobody bool
}

// process is a running process in its own process group.
type process struct {
	*exec.Cmd
	done   chan struct{}
	copied chan struct{} // closed when all that it printed is in the log
}

// finish waits for the exit status of a process that should end by itself.
func (s *system) finish(name string, p *process) int {
	s.t.Helper()
	s.until("the end of "+name, p.ended)
	return p.status()
}

// status waits for the exit status; that of a signal is 128 and the signal's number.
func (p *process) status() int {
	<-p.done
	if s, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return p.ProcessState.ExitCode()
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill kills the process and all that it started.
func (p *process) kill() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }

// system starts processes, and shows their output if the test fails.
type system struct {
	t   *testing.T
	mu  sync.Mutex
	log bytes.Buffer
}

func newSystem(t *testing.T) *system {
	s := &system{t: t}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.text())
		}
	})
	return s
}

func (s *system) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// prefixed marks the lines of a process.
type prefixed struct {
	s    *system
	name string
}

func (w prefixed) Write(b []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for line := range bytes.Lines(b) {
		fmt.Fprintf(&w.s.log, "%s: %s\n", w.name, bytes.TrimRight(line, "\n"))
	}
	return len(b), nil
}

// start starts a process. It ends with the test at the latest.
func (s *system) start(name string, c command) *process {
	s.t.Helper()
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, []string{"PATH=" + os.Getenv("PATH")}
	for _, key := range slices.Sorted(maps.Keys(c.env)) {
		cmd.Env = append(cmd.Env, key+"="+c.env[key])
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.asNobody && os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	out, in, err := os.Pipe() // that the group may keep open, which Wait is not to wait for
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	_ = in.Close()
	copied := make(chan struct{})
	go func() { // ends with the process group
		defer close(copied)
		_, _ = io.Copy(prefixed{s, name}, out)
	}()
	p := &process{Cmd: cmd, done: make(chan struct{}), copied: copied}
	go func() { // ends with the process
		_ = cmd.Wait()
		close(p.done)
	}()
	s.t.Cleanup(func() {
		p.kill()
		<-p.done
		<-copied
		_ = out.Close()
	})
	return p
}

// output runs a command and returns its output.
func (s *system) output(c command) string {
	s.t.Helper()
	other := newSystem(s.t)
	p := other.start("out", c)
	if status := other.finish("the command", p); status != 0 {
		s.t.Fatalf("%q ends with %d", c.args, status)
	}
	<-p.copied
	return strings.TrimPrefix(other.text(), "out: ")
}

// kept is a process that the system restarts by its policy.
type kept struct {
	mu       sync.Mutex
	now      *process
	stopping bool
	starts   int
}

// keep starts a process, and restarts it if the policy says so for its exit status. fresh prepares each start.
func (s *system) keep(name string, again func(status int) bool, fresh func() command) *kept {
	k := &kept{now: s.start(name, fresh()), starts: 1}
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for {
			status := k.current().status()
			k.mu.Lock()
			if k.stopping || !again(status) {
				k.mu.Unlock()
				return
			}
			fmt.Fprintf(prefixed{s, name}, "ended with %d, starts again\n", status)
			k.now = s.start(name, fresh())
			k.starts++
			k.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	s.t.Cleanup(func() {
		k.mu.Lock()
		k.stopping = true
		k.now.kill()
		k.mu.Unlock()
		<-ended
	})
	return k
}

func (k *kept) current() *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// stop sends the process a signal, as systems do, and checks that it ends in time.
func (k *kept) stop(t *testing.T, name string, grace time.Duration) {
	t.Helper()
	k.mu.Lock()
	k.stopping = true
	p := k.now
	k.mu.Unlock()
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if status := p.status(); status != 0 {
			t.Errorf("%s ended with %d after a SIGTERM; want 0", name, status)
		}
	case <-time.After(grace):
		t.Errorf("%s goes on %v after a SIGTERM", name, grace)
	}
}

// until waits for a condition.
func (s *system) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(60 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("waited 60 s for", what)
		}
	}
}

func (s *system) untilFile(path string) {
	s.t.Helper()
	s.until(path, func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0
	})
}

// trained counts the steps that a run has written, and fails if the run ended too early.
func trained(out string) int {
	content, _ := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	return bytes.Count(content, []byte("\n"))
}

// wantTrained checks a run's output.
func wantTrained(t *testing.T, out string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(read(t, filepath.Join(out, "metrics.jsonl"))), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, fmt.Sprintf(`"step":%d,`, steps)) || !strings.Contains(last, `"loss":`) {
		t.Errorf("the last line of the metrics is %s; want that of step %d", last, steps)
	}
	if _, err := os.Stat(filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", steps))); err != nil {
		t.Error(err)
	}
}
