package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asProgram makes the test binary the program.
const asProgram = "TROUPE_EXAMPLE_CLUSTER_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is the time limit of each step of a test on a busy machine.
const patience = 2 * time.Minute

// output is a process's output.
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

// service is a process.
type service struct {
	cmd       *exec.Cmd
	out, errs output
	ended     chan error
}

// start starts a process, which ends with the test.
func start(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	s := &service{cmd: exec.Command(os.Args[0], args...), ended: make(chan error, 1)}
	s.cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.errs
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }() // ends with the process
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("%v:\n%s%s", args, &s.out, &s.errs)
		}
	})
	return s
}

// end waits for the process to exit without an error.
func (s *service) end(t *testing.T) {
	t.Helper()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("%v: %v", s.cmd.Args[1:], err)
		}
	case <-time.After(patience):
		t.Fatalf("%v has not ended after %v", s.cmd.Args[1:], patience)
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("no %s after %v", what, patience)
		}
	}
}

// TestService: the service is a cluster's coordinator, worker and client.
func TestService(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	dir := t.TempDir()
	text, err := filepath.Abs("../../testdata/troupe.txt")
	if err != nil {
		t.Fatal(err)
	}
	runs := t.TempDir() // not the coordinator's folder, which submissions may not use
	paths := []string{"TEXT=" + text, "OUT=" + filepath.Join(runs, "run")}
	coordinator := start(t, paths, "cluster", "start", "--listen", "127.0.0.1:0", "--dir", dir, "--env", "TEXT", "--env", "OUT", "--root",
		runs, "--root", filepath.Dir(text))
	var address string
	until(t, "coordinator", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "address"))
		address = strings.TrimSpace(string(text))
		_, terr := os.Stat(filepath.Join(dir, "operator.token")) // which is written last
		return err == nil && address != "" && terr == nil
	})
	worker := start(t, nil, "work", "--join", address, "--token-file", filepath.Join(dir, "worker.token"), "--threads", "1")
	until(t, "worker", func() bool {
		s := start(t, nil, "status", "--json", "--dir", dir)
		return <-s.ended == nil && strings.Contains(s.out.String(), `"name":"service"`)
	})
	until(t, "actor of the service's own in the worker's system", func() bool { // its words come through a pipe
		return strings.Contains(worker.errs.String(), "the service's own actor has started")
	})

	token := filepath.Join(dir, "operator.token")
	whole := start(t, nil, "train", "--cluster", address, "--token-file", token, "config.toml")
	whole.end(t)
	out := whole.out.String()
	if !strings.Contains(out, "step 20 loss ") ||
		!regexp.MustCompile(`(?m)^run [0-9a-f]{8} ended at step 20, checkpoint .*step-00000020$`).MatchString(out) {
		t.Errorf("it prints\n%s", out)
	}

	config, err := os.ReadFile("config.toml")
	if err == nil {
		config = bytes.Replace(bytes.Replace(config, []byte("steps = 20"), []byte("steps = 1000000"), 1), []byte("${OUT:-runs/service}"),
			[]byte(filepath.Join(runs, "long")), 1)
		err = os.WriteFile(filepath.Join(dir, "long.toml"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	long := start(t, nil, "train", "--cluster", address, "--token-file", token, filepath.Join(dir, "long.toml"))
	until(t, "step", func() bool { return strings.Contains(long.out.String(), "step 2 loss ") })
	if err := long.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	long.end(t)
	if out := long.out.String(); !regexp.MustCompile(`ended at step \d+, checkpoint .*step-\d+\n$`).MatchString(out) {
		t.Errorf("it prints\n%s", out)
	}
	for _, s := range []*service{coordinator, worker} {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.end(t)
	}
}
