//go:build unix && !race

package docs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell runs commands in a folder.
type shell struct {
	dir string
	env []string
}

func newShell(t *testing.T, dir string) *shell {
	t.Helper()
	home := t.TempDir() // tokens of a coordinator lie below it
	env := append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "NO_COLOR=1", "TERM=dumb", "COLUMNS=100",
		"GORACE=atexit_sleep_ms=0")
	return &shell{dir, env}
}

// patience is how long a block of commands may take on a busy machine.
const patience = 2 * time.Minute

// run runs a script and returns what it prints and its exit status. What it leaves in the background
// is killed when the test ends.
func (s *shell) run(t *testing.T, script string) (printed string, status int) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "output") // no pipe: what runs in the background would keep it open
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	if err == nil {
		group := -cmd.Process.Pid
		t.Cleanup(func() { _ = syscall.Kill(group, syscall.SIGKILL) }) // it may be empty
		err = cmd.Wait()
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// commands runs a block of commands, or checks them.
func (p *page) commands(t *testing.T, f fence) {
	t.Helper()
	want, long := 0, os.Getenv("TROUPE_LONG_TESTS") != ""
	switch {
	case f.is("sh", "norun"), f.is("sh", "long") && !long:
		p.output = ""
		checkCommands(t, f)
		return
	case f.is("sh", "exit") && len(f.info) == 3:
		status, err := strconv.Atoi(f.info[2])
		if err != nil {
			t.Fatalf("%v: %v", f, err)
		}
		want = status
	case len(f.info) > 1 && !f.is("sh", "long"):
		t.Fatalf("%v: unknown words %q; see fences_test.go", f, f.info)
	}
	began := time.Now()
	out, status := p.run(t, f.text)
	t.Logf("%v: %.1f s", f, time.Since(began).Seconds())
	if p.output = out; status != want {
		t.Fatalf("%v: exit status %d, want %d, of\n%s\nwhich prints\n%s", f, status, want, f.text, out)
	}
}

// printed compares output in a document with what the commands before it print.
func (p *page) printed(t *testing.T, f fence) {
	t.Helper()
	switch {
	case !f.is("text", "output"):
		return
	case p.output == "":
		return // the commands were not run
	}
	rest := p.output
	for line := range strings.Lines(f.text) {
		if strings.TrimSpace(line) == "" || strings.TrimSpace(line) == "…" {
			continue
		}
		at := asPattern(line).FindStringIndex(rest)
		if at == nil {
			t.Errorf("%v: this line is not printed, or not in this order:\n%s\nprinted:\n%s", f, line, p.output)
			return
		}
		rest = rest[at[1]:]
	}
}

// asPattern matches a line in which "…" stands for anything, and spaces for any number of them.
func asPattern(line string) *regexp.Regexp {
	words := strings.Fields(line)
	for i, w := range words {
		words[i] = strings.ReplaceAll(regexp.QuoteMeta(w), "…", `.*?`)
	}
	return regexp.MustCompile(strings.Join(words, `\s+`))
}

// partOf compares a part of a Go file with the file.
func partOf(t *testing.T, f fence) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, f.file())); err != nil {
		t.Errorf("%v: %v", f, err)
		return
	}
	rest := dense(read(t, f.file()))
	for part := range strings.SplitSeq(dense(f.text), "// …\n") {
		at := strings.Index(rest, part)
		if at < 0 {
			t.Errorf("%v: %s does not have, in this order, the lines\n%s", f, f.file(), part)
			return
		}
		rest = rest[at+len(part):]
	}
}

// dense is Go code without indentation, alignment and empty lines.
func dense(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if words := strings.Fields(line); len(words) > 0 {
			b.WriteString(strings.Join(words, " ") + "\n")
		}
	}
	return b.String()
}
