package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
)

// asProgram makes the test binary the program.
const asProgram = "TROUPE_EXAMPLE_USHAPE"

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

// process is a process of the example.
type process struct {
	out, errs output
	ended     chan error
	end       func()
}

// start starts a process, which ends with the test at the latest.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{ended: make(chan error, 1)}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { // ends with the process
		p.ended <- cmd.Wait()
		close(gone)
	}()
	p.end = func() {
		_ = cmd.Process.Kill()
		<-gone
	}
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			t.Logf("%v:\n%s%s", args, &p.out, &p.errs)
		}
	})
	return p
}

// trainApart runs the example with an edge and two clouds, and returns their logs.
func trainApart(t *testing.T, out string, file string) (logs [3]string) {
	t.Helper()
	text, err := filepath.Abs("../../testdata/troupe.txt")
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	edge := start(t, []string{"TEXT=" + text, "OUT=" + out}, "edge", "--listen", "127.0.0.1:0", "--token-file", token, "--threads", "1", file)
	address := regexp.MustCompile(`(?m)^listening at (\S+)$`)
	for began := time.Now(); !address.MatchString(edge.out.String()); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("the edge doesn't listen after %v", patience)
		}
	}
	at := address.FindStringSubmatch(edge.out.String())[1]
	var clouds [2]*process
	for i := range clouds {
		clouds[i] = start(t, nil, "cloud", "--join", at, "--name", fmt.Sprint("cloud-", i), "--token-file", token, "--threads", "1")
		defer clouds[i].end()
	}
	select {
	case err := <-edge.ended:
		if err != nil {
			t.Fatalf("the edge: %v", err)
		}
	case <-time.After(patience):
		t.Fatalf("the edge has not ended after %v", patience)
	}
	logs[0] = edge.errs.String()
	for i, c := range clouds {
		for began := time.Now(); !strings.Contains(c.errs.String(), "stopped computing"); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > patience {
				t.Fatalf("cloud-%d still computes after %v", i, patience)
			}
		}
		logs[1+i] = c.errs.String()
	}
	return logs
}

var sent = regexp.MustCompile(`(?m)msg="sent in this attempt".* to=(\S+) what=("[^"]*"|\S+) messages=(\d+) bytes=(\d+)$`)

// TestStays: the edge trains with two other processes, which share each layer, and gets the bits of one process. The edge's
// tokens, targets and weights never leave it, also if the run resumes from a checkpoint.
func TestStays(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "run")
	logs := trainApart(t, out, "config.toml")
	control := []string{"apply", "credit", "halt", "leave", "order", "peers", "savestate"} // numbers of the table, and the rate
	check := func(logs [3]string, weights bool) {
		t.Helper()
		bytesOf := make(map[string]int)
		for _, m := range sent.FindAllStringSubmatch(logs[0], -1) {
			to, what := m[1], strings.Trim(m[2], `"`)
			n, err := strconv.Atoi(m[4])
			if err != nil || n > 1<<40 {
				t.Fatal(m[0])
			}
			if !strings.HasPrefix(to, "cloud-") {
				continue
			}
			middle := regexp.MustCompile(`^weight transformer\.h\.[234]\.`).MatchString(what)
			switch {
			case slices.Contains(control, what) && n == 0:
			case what == "activations for chunk 1", what == "gradients for chunk 1":
				bytesOf[to+" "+what] = n
			case weights && middle:
				bytesOf["weights"] += n
			default:
				t.Errorf("%s has left the edge for %s, %d bytes", what, to, n)
			}
		}
		if bytesOf["cloud-0 activations for chunk 1"] == 0 || bytesOf["cloud-0 gradients for chunk 1"] == 0 ||
			weights != (bytesOf["weights"] > 0) {
			t.Errorf("what has left is %v", bytesOf)
		}
		if n := bytesOf["cloud-1 activations for chunk 1"]; n != 0 { // they come from the other one
			t.Errorf("%d bytes for the second rank of the group", n)
		}
		// The U closes: the last stage has the first one's end for its next, and only its first rank sends.
		var back []string
		for _, log := range logs[1:] {
			for _, m := range sent.FindAllStringSubmatch(log, -1) {
				if to, what := m[1], strings.Trim(m[2], `"`); m[4] != "0" && what != "stagestate" {
					back = append(back, what+" to "+to)
				}
			}
		}
		if want := []string{"activations for chunk 2 to edge", "gradients for chunk 0 to edge"}; !slices.Equal(back, want) {
			t.Errorf("the cloud sends %q, want %q", back, want)
		}
	}
	check(logs, false)

	// The same in one process, and on one rank.
	here, alone := filepath.Join(dir, "here"), filepath.Join(dir, "alone")
	trainHere(t, here)
	trainHere(t, alone, "pipeline.stages=1", "pipeline.chunks=1", "pipeline.schedule=none", "pipeline.layout=", "parallel.tensor=1",
		"cluster.edge=false", "cluster.place=[]")
	same(t, here, out, 20)
	if a, b := loss(t, alone), loss(t, out); math.Abs(a-b) > 1e-5*a {
		t.Errorf("loss %.9g, on one rank %.9g", b, a)
	}

	// It goes on: the others get the weights of their layers, and no others.
	config, err := os.ReadFile("config.toml")
	if err != nil {
		t.Fatal(err)
	}
	further := filepath.Join(dir, "further.toml")
	if err := os.WriteFile(further, bytes.Replace(config, []byte("\nsteps = 20"), []byte("\nsteps = 24"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	check(trainApart(t, out, further), true)
	trainHere(t, here, "run.steps=24")
	same(t, here, out, 24)
}

// trainHere trains in this process.
func trainHere(t *testing.T, out string, sets ...string) {
	t.Helper()
	text, err := filepath.Abs("../../testdata/troupe.txt")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load("config.toml", append([]string{"device.threads=1"}, sets...), func(name string) (string, bool) {
		v, ok := map[string]string{"TEXT": text, "OUT": out}[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
}

// same compares the files of a checkpoint.
func same(t *testing.T, want, got string, step int) {
	t.Helper()
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		at := filepath.Join("checkpoints", fmt.Sprintf("step-%08d", step), name)
		a, err := os.ReadFile(filepath.Join(want, at))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(got, at))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from the one that one process writes", at)
		}
	}
}

// loss returns the loss of the last step.
func loss(t *testing.T, out string) float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var record struct {
		Step int     `json:"step"`
		Loss float64 `json:"loss"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &record); err != nil || record.Step != 20 || record.Loss == 0 {
		t.Fatalf("%s: %v", lines[len(lines)-1], err)
	}
	return record.Loss
}
