// Package metrics_test runs the engine and looks at what it gives to Prometheus, OpenTelemetry and
// TensorBoard with their own programs: see make check-metrics.
package metrics_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// root is the repository's.
const root = "../.."

// binaries is where programs are built.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "troupe-metrics"); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(binaries)
	os.Exit(status)
}

// build builds a program, once.
func build(dir, name string, args ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(binaries, name)
		cmd := exec.Command("go", append([]string{"build", "-o", path}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w: %s", name, err, out)
		}
		return path, nil
	})
}

var (
	buildEngine = build(root, "engine", "-trimpath", "-tags", "nocuda", "./cmd/engine")
	// Without its clients of clouds, of which checking needs none.
	buildPromtool = build(".", "promtool", "-tags", "remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool")
)

func program(t *testing.T, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// patience is how long even a busy machine may take for a few steps.
const patience = 3 * time.Minute

const tiny = `
[run]
name = "tiny"
steps = 8
eval_every = 3
eval_batches = 1
checkpoint_every = 4
keep = 0
trace_every = 2

[model]
layers = 2
hidden = 8
heads = 2
context = 8

[data]
train = ["text.txt"]

[batch]
sequences = 4
microbatch = 2

[optimizer]
warmup_steps = 2

[pipeline]
stages = 2
`

// folder is one with a configuration and its text.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"tiny.toml": tiny, "text.txt": strings.Repeat("The quick brown fox jumps over the lazy dog.\n",
		40)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// engine runs the program to its end.
func engine(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(program(t, buildEngine), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("engine %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// process is an engine that runs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs *bufio.Reader
}

func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program(t, buildEngine), args...)}
	p.cmd.Dir, p.cmd.Stdout = dir, io.Discard
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.errs = bufio.NewReader(pipe)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it has ended, unless the test failed
	return p
}

// says reads the messages up to one that begins with a text, and returns its rest.
func (p *process) says(text string) string {
	p.t.Helper()
	var all strings.Builder
	for {
		line, err := p.errs.ReadString('\n')
		all.WriteString(line)
		if rest, ok := strings.CutPrefix(line, text); ok {
			return strings.TrimSpace(rest)
		}
		if err != nil {
			p.t.Fatalf("%q is not said:\n%s", text, all.String())
		}
	}
}

// stop ends it by SIGTERM, and wants the exit status of a run that goes on later.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	rest, _ := io.ReadAll(p.errs)
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 75 {
		p.t.Fatalf("stopped by SIGTERM: %v\n%s", err, rest)
	}
}

// scrape reads a page of metrics until it has all of some texts.
func scrape(t *testing.T, url string, until ...string) string {
	t.Helper()
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
		missing := false
		for _, u := range until {
			missing = missing || !strings.Contains(string(body), u)
		}
		if text = string(body); !missing {
			return text
		}
	}
	t.Fatalf("%s does not come to have %q:\n%s", url, until, text)
	return ""
}
