package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// prepare makes the folder of a stopped coordinator with a run.
func prepare(t *testing.T, dir, state string, requests []troupe.Change) {
	t.Helper()
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("a few words of a text ", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("[run]\nname = \"r\"\nout = %q\nsteps = 1000000\neval_every = 0\ncheckpoint_every = 0\n[model]\nlayers = 1\nhidden = 8\nheads = 2\ncontext = 8\n[data]\ntrain = [%q]\n[batch]\nsequences = 4\nmicrobatch = 2\n", filepath.Join(dir, "out"), text)
	j, err := journal.Open(state)
	if err == nil {
		err = j.Put(journal.Entry{ID: "01ab23cd", Name: "r", Folder: dir, Config: config, Workers: 1, Submitted: "2026-11-22T10:00:00Z",
			State: journal.Begun, Requests: requests, Restarts: 1, LostSteps: 222})
	}
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAskedWhileItWaits: a request to a resumed run that waits for workers overrides earlier ones: a run that was paused
// before the restart trains if it is told to resume.
func TestAskedWhileItWaits(t *testing.T) {
	pause, later := troupe.Change{Kind: event.ChangePause}, troupe.Change{Kind: event.ChangePause, Step: 2}
	resume, save := wire.ControlRequest_RESUME, wire.ControlRequest_CHECKPOINT
	for name, had := range map[string]struct {
		requests []troupe.Change
		ask      []wire.ControlRequest_Action
		trains   bool
	}{
		"a pause":                     {[]troupe.Change{pause}, []wire.ControlRequest_Action{resume}, true},
		"two pauses":                  {[]troupe.Change{pause, later}, []wire.ControlRequest_Action{resume}, true},
		"a pause again":               {[]troupe.Change{pause}, []wire.ControlRequest_Action{resume, wire.ControlRequest_PAUSE}, false},
		"a pause and another request": {[]troupe.Change{pause}, []wire.ControlRequest_Action{resume, save}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			state := filepath.Join(dir, "state")
			prepare(t, dir, state, had.requests)
			c := startCoordinator(t, Config{Dir: state}, 0)
			r, err := c.runs.find("r")
			if err != nil {
				t.Fatal(err)
			}
			if s := r.summary(); s.GetRestarts() != 1 || s.GetLostSteps() != 222 {
				t.Errorf("the counts of the journal: %v", s)
			}
			for end := time.Now().Add(time.Minute); !strings.Contains(r.summary().GetWaiting(), "waits for"); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it does not wait: %v", r.summary())
				}
			}
			time.Sleep(50 * time.Millisecond) // until it has begun to wait
			for _, action := range had.ask {
				if _, _, err := c.runs.control(&wire.ControlRequest{Run: "r", Action: action}, "test"); err != nil {
					t.Fatal(err)
				}
			}
			token, err := c.NewToken(RoleWorker, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			startWorker(t, c, token, "w")
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				s := r.summary()
				if had.trains && s.GetStep() > 3 || !had.trains && s.GetState() == wire.RunSummary_PAUSED {
					break
				}
				if time.Now().After(end) || had.trains && s.GetState() == wire.RunSummary_PAUSED || !had.trains && s.GetStep() > 3 {
					t.Fatalf("the run is %v", s)
				}
			}
			c.Shutdown(t.Context())
		})
	}
}

// TestStoppedWhereNothingIsNoted: a run that is stopped while it begins ends, even if the coordinator can't write its journal.
func TestStoppedWhereNothingIsNoted(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	prepare(t, dir, state, nil)
	var c *Coordinator
	at, begins := make(chan struct{}), 0
	c = startCoordinator(t, Config{Dir: state, atPoint: func(point string) {
		if point != pointStarted {
			return
		}
		if begins++; begins > 1 {
			return
		}
		<-at // c is set
		c.runs.mu.Lock()
		j := c.runs.journal
		dir := j.Through(nil)
		j.Through(full{dir})
		c.runs.mu.Unlock()
		if _, warning, err := c.runs.control(&wire.ControlRequest{Run: "r", Action: wire.ControlRequest_STOP}, "test"); err != nil ||
			warning == "" {
			t.Errorf("a stop: %q, %v", warning, err)
		}
		time.AfterFunc(500*time.Millisecond, func() {
			c.runs.mu.Lock()
			defer c.runs.mu.Unlock()
			j.Through(dir)
		})
	}}, 0)
	close(at)
	token, err := c.NewToken(RoleWorker, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	startWorker(t, c, token, "w")
	r, err := c.runs.find("r")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		t.Errorf("the run goes on, begun %d times: %v", begins, r.summary())
	}
}

// full simulates a folder on a full disk.
type full struct{ folder.FS }

func (full) Create(string) (folder.File, error) { return nil, syscall.ENOSPC }
