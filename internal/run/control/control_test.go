package control

import (
	"bufio"
	"errors"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRun is a run whose answers the test decides.
type fakeRun struct {
	feed.Feed
	mu     sync.Mutex
	asked  []event.Change
	kills  int
	answer func(event.Change) error // in a ChangeEvent
}

func (f *fakeRun) Info() event.Info {
	return event.Info{Name: "first", Out: "runs/first", ID: "id", Steps: 9, ResumedAt: 2}
}

func (f *fakeRun) Status() event.Status {
	return event.Status{Actors: []event.Snapshot{{Actor: event.Scheduler, Rank: -1, Doing: event.Paused}}}
}

func (f *fakeRun) Change(c event.Change) error {
	f.mu.Lock()
	f.asked = append(f.asked, c)
	f.mu.Unlock()
	if f.answer != nil {
		f.Publish(event.ChangeEvent{Change: c, Err: f.answer(c)})
	}
	return nil
}

func (f *fakeRun) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kills++
}

// serve starts a server for a run in a new folder.
func serve(t *testing.T, dir string, run *fakeRun) *Server {
	t.Helper()
	s, err := Listen(dir, run, run.Subscribe())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run.Close()
		s.Close(event.EndEvent{})
	})
	return s
}

func dial(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestRequests: a client gets the state with each answer, and why a request was refused.
func TestRequests(t *testing.T) {
	dir := t.TempDir()
	run := &fakeRun{Feed: feed.New(), answer: func(c event.Change) error {
		if c.Step == 1 {
			return errors.New("step 1 has already ended")
		}
		return nil
	}}
	s := serve(t, dir, run)
	if info, err := os.Lstat(s.Path()); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	c := dial(t, dir)
	got, err := c.Status()
	if err != nil || got.Name != "first" || got.Step != 2 || got.Steps != 9 || got.PID != os.Getpid() || !got.Actors.Paused() {
		t.Errorf("the status is %+v, %v", got, err)
	}
	for _, ch := range []event.Change{{Kind: event.ChangePause}, {Kind: event.ChangeRate, LR: 1e-3, MinLR: 1e-4},
		{Kind: event.ChangeStop, Step: 5}} {
		if _, err := c.Change(ch); err != nil {
			t.Errorf("%v: %v", ch, err)
		}
	}
	if _, err := c.Change(event.Change{Kind: event.ChangeStop, Step: 1}); !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "step 1") {
		t.Errorf("a stop that the run refuses: %v", err)
	}
	c = dial(t, dir) // a refusal ends the connection
	if _, err := c.Kill(); err != nil {
		t.Error(err)
	}
	run.mu.Lock()
	if len(run.asked) != 4 || run.kills != 1 {
		t.Errorf("the run got %v and %d kills", run.asked, run.kills)
	}
	run.mu.Unlock()
}

// TestState: the state follows the events of the run. An infinite loss is not in it.
func TestState(t *testing.T) {
	dir := t.TempDir()
	run := &fakeRun{Feed: feed.New()}
	s := serve(t, dir, run)
	loss, rate := 2.5, 1e-3
	run.Publish(event.StepEvent{Record: telemetry.Record{Step: 3, Loss: &loss, LR: &rate}})
	run.Publish(event.CheckpointEvent{Step: 3, Dir: "runs/first/checkpoints/step-3"})
	run.Publish(event.CheckpointEvent{Step: 4, Dir: "runs/first/checkpoints/best-4", Best: true, Weights: true})
	run.Publish(event.RestartEvent{})
	run.Close()
	<-s.watched
	got, err := dial(t, dir).Status()
	if err != nil || got.Step != 3 || *got.Loss != loss || *got.LR != rate || got.Restarts != 1 ||
		got.Checkpoint != "runs/first/checkpoints/step-3" || got.ValLoss != nil {
		t.Errorf("the status is %+v, %v", got, err)
	}
}

// TestFollow: a follower gets the description, the events and the end, even if it asks for the end late.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	run := &fakeRun{Feed: feed.New()}
	s, err := Listen(dir, run, run.Subscribe())
	if err != nil {
		t.Fatal(err)
	}
	left := dial(t, dir)
	if _, err := left.Follow(); err != nil {
		t.Fatal(err)
	}
	left.Close() // its handler ends
	stream, err := dial(t, dir).Follow()
	if err != nil || stream.Info.Name != "first" || stream.Info.Steps != 9 {
		t.Fatalf("the description is %+v, %v", stream.Info, err)
	}
	loss := 2.5
	run.Publish(event.StepEvent{Record: telemetry.Record{Step: 3, Loss: &loss}, IdealBubblePct: 20})
	run.Publish(event.RestartEvent{Err: errors.New("w1 failed"), Restart: 1, Most: 10})
	run.Close()
	s.Close(event.EndEvent{Result: event.Result{Step: 3, Steps: 9, Stopped: true, BestValLoss: math.NaN()}, Err: errors.New("failed")})
	var got []event.Event
	for {
		e, err := stream.Next()
		if err != nil {
			if !errors.Is(err, ErrGone) {
				t.Error(err)
			}
			break
		}
		got = append(got, e)
	}
	if len(got) != 3 {
		t.Fatalf("the events are %+v", got)
	}
	step, restart, end := got[0].(event.StepEvent), got[1].(event.RestartEvent), got[2].(event.EndEvent)
	if step.Step != 3 || *step.Loss != loss || restart.Err.Error() != "w1 failed" || !end.Result.Stopped || end.Err.Error() != "failed" {
		t.Errorf("the events are %+v", got)
	}
}

// TestStale: a socket of a process that has ended is replaced; a file is not.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, rundir.SocketFile)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if _, err := Dial(t.Context(), dir); !errors.Is(err, ErrAbsent) {
		t.Errorf("nobody listens: %v", err)
	}
	s := serve(t, dir, &fakeRun{Feed: feed.New()})
	if _, err := dial(t, dir).Status(); err != nil {
		t.Error(err)
	}
	if _, err := listenAt(s.Path()); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a socket in use: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenAt(file); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
}

// TestLongPath: the socket of a folder with a long path is elsewhere, in a folder that only this user can use.
func TestLongPath(t *testing.T) {
	privateBase = t.TempDir()
	t.Cleanup(func() { privateBase = "/tmp" })
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), strings.Repeat("link", 30))
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, &fakeRun{Feed: feed.New()})
	if filepath.Dir(s.Path()) != private() {
		t.Errorf("the socket is at %s", s.Path())
	}
	if _, err := dial(t, link).Status(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(private(), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(link, nil, nil); err == nil || !strings.Contains(err.Error(), "lets other users in") {
		t.Errorf("a folder that others can read: %v", err)
	}
}

// TestLimits: too many clients, too long a line, and nonsense are refused, and the server goes on serving.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, &fakeRun{Feed: feed.New()})
	for _, line := range []string{strings.Repeat("x", limitRequestBytes+1), "nonsense", `{"version":99,"op":"status"}`,
		`{"version":1,"op":"status"} x`,
		`{"version":1,"op":"change"}`, `{"version":1,"op":"status","more":1}`,
		`{"version":1,"op":"change","change":{"kind":"rate","step":0,"lr":-1}}`} {
		c, err := net.Dial("unix", s.Path())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(line + "\n")); err != nil {
			t.Error(err)
		}
		reply, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(reply, `"error":"`) {
			t.Errorf("%.40s: the answer is %q, %v", line, reply, err)
		}
		_ = c.Close()
	}
	awaitNoClients(t, s)
	var all []*Client
	for range LimitClients {
		c := dial(t, dir)
		if _, err := c.Status(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if _, err := dial(t, dir).Status(); !errors.Is(err, ErrBusy) {
		t.Errorf("one client too many: %v", err)
	}
	for _, c := range all {
		c.Close()
	}
	s.Shut()
	if _, err := os.Lstat(s.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := Dial(t.Context(), dir); !errors.Is(err, ErrAbsent) {
		t.Errorf("after the end: %v", err)
	}
}

// awaitNoClients waits until the server has noticed that its clients have left.
func awaitNoClients(t *testing.T, s *Server) {
	t.Helper()
	for end := time.After(10 * time.Second); ; {
		s.mu.Lock()
		n := len(s.clients)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-end:
			t.Fatalf("%d clients are still connected", n)
		default:
			runtime.Gosched()
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"op":"status"}`))
	f.Add([]byte(`{"version":1,"op":"change","change":{"kind":"rate","step":4,"lr":0.001,"min_lr":0}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		q, err := parseRequest(line)
		if err == nil && (q.Op == opChange) != (q.Change != nil) {
			t.Errorf("%q is accepted as %+v", line, q)
		}
		if err == nil && q.Change != nil && q.Change.Check() != nil {
			t.Errorf("%q is accepted as %+v", line, q.Change)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"version":1,"state":{"name":"first","step":3,"actors":{"Actors":[]}}}`))
	f.Add([]byte(`{"version":1,"error":"no"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := parseAnswer(line)
		if err == nil && a.Error == "" && a.State == nil {
			t.Errorf("%q is accepted as an empty answer", line)
		}
		if err == nil && a.State != nil {
			_ = a.State.Actors.String() // what actors do comes from another process
			_ = a.State.Actors.Chain()
		}
	})
}
