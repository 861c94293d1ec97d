package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
)

const privateText = "PRIVATE-PATIENT-RECORD: Jane Roe, diagnosis X17, row 88. "

// ushape is a config whose first stage has the first and the last layers.
func ushape(t *testing.T, dir string, sets ...string) *config.Config {
	t.Helper()
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat(privateText, 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("c.toml", fmt.Appendf(nil, `run = {out = %q, steps = 2, eval_every = 0, checkpoint_every = 0}
model = {layers = 6, hidden = 32, heads = 2, context = 32}
data = {train = [%q], tokenizer = "bytes"}
batch = {sequences = 4, microbatch = 2}
optimizer = {warmup_steps = 1}
pipeline = {stages = 2, schedule = "u-shape", layout = "Ett|ttt|tL"}
`, filepath.Join(dir, "out"), text), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// secrets returns by name what must not leave the edge: the text and its tokens, and rows of the first stage's weights and
// optimizer state. shared are rows of the other stage.
func secrets(t *testing.T, dir string) (private, shared map[string][]byte, params []string) {
	t.Helper()
	private, shared = make(map[string][]byte), make(map[string][]byte)
	marker := "PATIENT-RECORD"
	private["the text"], private["its tokens"] = []byte(marker), asTokens(marker)
	other := regexp.MustCompile(`\.(2|3|4)\.`)
	err := filepath.WalkDir(filepath.Join(dir, "out", "checkpoints"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".safetensors") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := binary.LittleEndian.Uint64(text)
		var tensors map[string]json.RawMessage
		if err := json.Unmarshal(text[8:8+n], &tensors); err != nil {
			return err
		}
		for name, raw := range tensors {
			var at struct {
				Offsets [2]int `json:"data_offsets"`
			}
			if name == "__metadata__" || json.Unmarshal(raw, &at) != nil {
				continue
			}
			row := text[8+int(n)+at.Offsets[0] : 8+int(n)+at.Offsets[1]]
			row = row[:min(len(row), 64)]
			if params = append(params, strings.TrimPrefix(strings.TrimPrefix(name, "m."), "v.")); !telling(row) {
				continue
			}
			if other.MatchString(name) {
				shared[name] = row
			} else {
				private[name] = row
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(private) < 10 || len(shared) < 5 {
		t.Fatalf("%d secrets and %d others were found", len(private), len(shared))
	}
	return private, shared, params
}

// telling reports whether a row has enough different values to be recognized.
func telling(row []byte) bool {
	seen := make(map[float32]bool)
	for ; len(row) >= 4; row = row[4:] {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(row)); v != 0 && !math.IsNaN(float64(v)) {
			seen[v] = true
		}
	}
	return len(seen) >= 12
}

// startAdversary starts an adversary's process.
func startAdversary(t *testing.T, c *Coordinator, dir, name, edge string) {
	t.Helper()
	token, err := c.NewToken(RoleWorker, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAdversaryProgram$")
	cmd.Env = append(os.Environ(), adversaryEnv+"="+c.Address(), adversaryEnv+"_NAME="+name, adversaryEnv+"_DIR="+dir, adversaryEnv+"_EDGE="+
		edge, "GORACE=atexit_sleep_ms=0")
	var out workerOutput
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.WriteString(in, token.String()+"\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", name, err, &out)
		}
	})
}

// TestEdgeAgainstAdversaries: two workers outside the edge, one with the other stage's ranks and one without ranks, ask for
// data, weights and states. They use every kind of message, over link and lane, under their own and other names, during the
// attempt and after it, and the operators' protocol. They receive nothing private, and other processes are not disturbed.
func TestEdgeAgainstAdversaries(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	run, err := troupe.Start(t.Context(), ushape(t, dir), troupe.Options{}) // weights and states that no seed gives
	if err != nil {
		t.Fatal(err)
	}
	for range run.Events() { // to the end
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	private, shared, params := secrets(t, dir)
	put(filepath.Join(files, paramsFile), []byte(strings.Join(params, " ")))

	c := startCoordinator(t, Config{Dir: filepath.Join(dir, "state")}, 0)
	token, err := c.NewToken(RoleWorker, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	startWorker(t, c, token, "edge")
	until(t, c, "the edge joined", func(names []string) bool { return len(names) == 1 })
	edge := c.Members()[0]
	startAdversary(t, c, files, "cloud", edge.Address)
	startAdversary(t, c, files, "spare", edge.Address)
	until(t, c, "all joined", func(names []string) bool { return len(names) == 3 })

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run, err = troupe.Start(ctx, ushape(t, dir, "run.steps=1000", "cluster.edge=true", `cluster.place=["edge", "cloud"]`),
		troupe.Options{Hosts: c.Hosts()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the run
		defer close(ended)
		for e := range run.Events() {
			if r, ok := e.(troupe.RestartEvent); ok {
				t.Errorf("the run was restarted: %v", r.Err)
			}
		}
	}()
	for _, name := range []string{"cloud", "spare"} {
		if await(ctx, filepath.Join(files, name+triedSuffix)); ctx.Err() != nil {
			t.Fatalf("%s has not tried all", name)
		}
	}
	select {
	case <-ended:
		_, err := run.Wait()
		t.Errorf("the run has ended by what they sent: %v", err)
	default:
	}
	if c.mesh.Refused() < 1000 {
		t.Errorf("%d messages were refused", c.mesh.Refused())
	}
	run.Kill()
	put(filepath.Join(files, killedFile), nil)
	<-ended
	_, _ = run.Wait()
	put(filepath.Join(files, endedFile), nil)
	for _, name := range []string{"cloud", "spare"} {
		if await(ctx, filepath.Join(files, name+afterSuffix)); ctx.Err() != nil {
			t.Fatalf("%s has not tried all afterwards", name)
		}
		if text, err := os.ReadFile(filepath.Join(files, name+failedSuffix)); err == nil {
			t.Errorf("%s got what it should not: %s", name, text)
		}
		taken, err := os.ReadFile(filepath.Join(files, name+takenSuffix))
		if err != nil {
			t.Fatal(err)
		}
		for what, secret := range private {
			if bytes.Contains(taken, secret) {
				t.Errorf("%s has got %s", name, what)
			}
		}
		own := 0
		for _, row := range shared {
			if bytes.Contains(taken, row) {
				own++
			}
		}
		// What it may have shows that all that comes is kept: weights of its own stage, and of none where it has no ranks.
		if (own > 0) != (name == "cloud") {
			t.Errorf("%s has got %d tensors of the other stage", name, own)
		}
		t.Logf("%s: %d bytes have come, %d tensors of its own stage", name, len(taken), own)
	}
	for _, m := range c.Members() {
		if m.Name == "edge" && m.Joined.Equal(edge.Joined) {
			return
		}
	}
	t.Error("the edge has left")
}
