//go:build linux

package uitest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is an engine that runs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	link string
	mu   sync.Mutex
	out  strings.Builder
	over chan error
}

var linkPattern = regexp.MustCompile(`https?://\S+`)

// start starts the engine and waits for the link that it prints.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	path, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(path, args...), over: make(chan error, 1)}
	p.cmd.Dir = dir
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		err := p.cmd.Wait()
		_ = w.Close()
		p.over <- err
	}()
	links := make(chan string, 1)
	go func() { // ends with the process's output
		for lines := bufio.NewScanner(r); lines.Scan(); {
			p.mu.Lock()
			p.out.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			if l := linkPattern.FindString(lines.Text()); l != "" {
				select {
				case links <- l:
				default:
				}
			}
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	t.Cleanup(p.end)
	select {
	case p.link = <-links:
	case err := <-p.over:
		p.over <- err
		t.Fatalf("%v: %v: %s", errNoLink, err, p.output())
	case <-time.After(patience):
		t.Fatalf("%v: %s", errNoLink, p.output())
	}
	return p
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case err := <-p.over:
		p.over <- err
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
	}
}

// child is a process that the engine has started with an argument.
func (p *process) child(argument string) int {
	p.t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		args, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		var state string
		var parent, pid int
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil || parent != p.cmd.Process.Pid || !strings.Contains(string(args), argument) {
			continue
		}
		if _, err := fmt.Sscan(string(text), &pid); err == nil {
			return pid
		}
	}
	p.t.Fatalf("the engine has no child %s", argument)
	return 0
}

// config is a small run on this project's own source.
const config = `
[run]
steps = 40
eval_every = 10
eval_batches = 2
checkpoint_every = 15
log_every = 5
trace_every = 10
stats_every = 4
sample_tokens = 40
sample_prompt = "func "

[model]
layers = 8
hidden = 48
heads = 4
context = 64

[data]
train = ["*.txt"]

[batch]
sequences = 8
microbatch = 1

[optimizer]
lr = 3e-3
warmup_steps = 5

[pipeline]
stages = 4
`

// workplace is a folder with a configuration and a text.
func workplace(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	files, err := filepath.Glob("../*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	for file, content := range map[string]string{"config.toml": config, "text.txt": text.String()} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_ = name
	return dir
}

// command runs a program to its end.
func command(t *testing.T, dir, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}
