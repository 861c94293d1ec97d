package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for what should come soon, on a busy machine.
const patience = 60 * time.Second

// limitTailBytes bounds the stored end of a process's standard error.
const limitTailBytes = 16 << 10

// tail stores the end of what is written to it, and everything after a crash.
type tail struct {
	mu      sync.Mutex
	text    []byte
	crashed bool
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	for _, word := range []string{"DATA RACE", "panic:", "fatal error:"} {
		w.crashed = w.crashed || bytes.Contains(w.text, []byte(word))
	}
	if !w.crashed {
		w.text = w.text[max(0, len(w.text)-limitTailBytes):]
	} else if len(w.text) > 4*limitTailBytes {
		w.text = w.text[:4*limitTailBytes]
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}

// process is a coordinator's or worker's process.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	err   tail
	ended chan struct{} // closed when it is gone and its output is read
}

// timeline has the events of all processes, in order.
type timeline struct {
	mu      sync.Mutex
	events  []event
	changed chan struct{}
}

func newTimeline() *timeline { return &timeline{changed: make(chan struct{})} }

func (l *timeline) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	close(l.changed)
	l.changed = make(chan struct{})
}

// from returns the events from a place on.
func (l *timeline) from(place int) (events []event, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[place:len(l.events):len(l.events)], l.changed
}

func (l *timeline) place() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// group is a coordinator and workers, each in its own process.
type group struct {
	// program makes a process of this test binary on a host; nil: on this machine.
	program func(ctx context.Context, host string) *exec.Cmd
	boss    settings        // of the coordinator
	dir     string          // for certificates
	more    func() string   // that a failure tells
	adjust  func(*settings) // of a worker, if there is one
	line    *timeline

	mu      sync.Mutex
	ctx     context.Context // ends with the test
	lead    *process
	address string
	workers map[string]*process
	asked   int
	all     []*process // that run or ran
}

// newGroup starts a coordinator, and ends all processes with the test. host and boss.Listen give its place.
func newGroup(t *testing.T, g *group) *group {
	t.Helper()
	if g.boss.Silence == 0 {
		g.boss.Silence = 20 * time.Second // a busy machine's processes are no dead ones
	}
	if g.boss.Lease == 0 {
		g.boss.Lease = 30 * time.Second
	}
	if g.boss.Listen == "" {
		g.boss.Listen = "127.0.0.1:0"
	}
	g.line, g.workers, g.dir = newTimeline(), make(map[string]*process), t.TempDir()
	if g.boss.Dir == "" {
		g.boss.Dir = filepath.Join(g.dir, "coordinator")
	}
	if g.program == nil {
		g.program = func(ctx context.Context, _ string) *exec.Cmd { return exec.CommandContext(ctx, os.Args[0]) }
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.ctx = ctx
	t.Cleanup(func() {
		g.end(t)
		cancel()
	})
	g.startCoordinator(t)
	return g
}

// startCoordinator starts the coordinator, at its previous address if it had one.
func (g *group) startCoordinator(t testing.TB) {
	t.Helper()
	place := g.line.place()
	p := g.start(t, "coordinator", g.boss, "")
	g.mu.Lock()
	g.lead = p
	g.mu.Unlock()
	e := g.await(t, "the coordinator to listen", place, patience, func(e event) bool { return e.Kind == "listening" })
	g.boss.Listen = e.Text
	g.mu.Lock()
	g.address = e.Text
	g.mu.Unlock()
}

// start starts a process. Its events go to the timeline.
func (g *group) start(t testing.TB, role string, s settings, token string) *process {
	t.Helper()
	p, err := g.tryStart(role, s, token)
	if err != nil {
		t.Fatalf("starting %s %s: %v", role, s.Name, err)
	}
	return p
}

func (g *group) tryStart(role string, s settings, token string) (*process, error) {
	host := s.Name
	if host == "" {
		host = role
	}
	return g.startProgram(g.program(g.ctx, host), role, s, token)
}

func (g *group) startProgram(cmd *exec.Cmd, role string, s settings, token string) (*process, error) {
	name := s.Name
	if name == "" {
		name = role
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, ended: make(chan struct{})}
	cmd.Env = append(os.Environ(), roleVariable+"="+role, settingsVariable+"="+string(text))
	cmd.Stderr = &p.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.all = append(g.all, p)
	g.mu.Unlock()
	go func() { // ends with the process
		defer close(p.ended)
		d := json.NewDecoder(out)
		for {
			var e event
			if d.Decode(&e) != nil {
				break
			}
			if role == "coordinator" || e.Kind == "reply" {
				g.line.add(e)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	if role == "worker" {
		if _, err := io.WriteString(p.in, token+"\n"); err != nil {
			return p, err
		}
	}
	return p, nil
}

// kill ends a process by SIGKILL, and waits until it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// end ends all processes: it tells the coordinator to stop, and then the workers must exit.
func (g *group) end(t testing.TB) {
	g.mu.Lock()
	all := g.all
	g.mu.Unlock()
	for _, p := range all {
		_ = p.in.Close()
	}
	for _, p := range all {
		select {
		case <-p.ended:
		case <-time.After(patience):
			t.Errorf("%s didn't end %v after its standard input did:\n%s", p.name, patience, &p.err)
			_ = p.kill()
		}
		p.err.mu.Lock()
		crashed := p.err.crashed
		p.err.mu.Unlock()
		if crashed {
			t.Errorf("%s crashed:\n%s", p.name, &p.err)
		}
	}
}

// workerSettings returns a worker's settings. With its certificate it can join again after a restart.
func (g *group) workerSettings(name string) settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := settings{Name: name, Join: g.address, Threads: 1, CertFile: filepath.Join(g.dir, name+".pem")}
	if g.adjust != nil {
		g.adjust(&s)
	}
	return s
}

// join starts workers and waits until they have joined.
func (g *group) join(t testing.TB, names ...string) {
	t.Helper()
	place := g.line.place()
	for _, name := range names {
		p := g.start(t, "worker", g.workerSettings(name), g.token(t, 3600))
		g.mu.Lock()
		g.workers[name] = p
		g.mu.Unlock()
	}
	for _, name := range names {
		g.await(t, name+" to join", place, patience, joined(name))
	}
}

func joined(name string) func(event) bool {
	return func(e event) bool { return e.Kind == "log" && e.Text == "worker joined" && e.Attrs["worker"] == name }
}

func gone(name string) func(event) bool {
	return func(e event) bool { return e.Kind == "log" && e.Text == "worker left" && e.Attrs["worker"] == name }
}

// token creates a worker's token.
func (g *group) token(t testing.TB, seconds float64) string {
	t.Helper()
	return g.ask(t, command{Do: "token", Seconds: seconds}).Text
}

// ask gives the coordinator a command and waits for its answer, which must not be an error.
func (g *group) ask(t testing.TB, c command) event {
	t.Helper()
	e, err := g.tell(c, patience)
	if err == nil && e.Error != "" {
		err = errors.New(e.Error)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.Do, err, g.describe())
	}
	return e
}

// tell gives the coordinator a command and waits for its answer.
func (g *group) tell(c command, patience time.Duration) (event, error) {
	place := g.line.place()
	id, err := g.send(c)
	if err != nil {
		return event{}, err
	}
	return g.find(place, patience, func(e event) bool { return e.Kind == "reply" && e.ID == id })
}

// send gives the coordinator a command.
func (g *group) send(c command) (id int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	c.ID = g.asked
	text, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	_, err = g.lead.in.Write(append(text, '\n'))
	return c.ID, err
}

var errNotCome = errors.New("it has not come")

// find waits for an event from a place on.
func (g *group) find(place int, patience time.Duration, want func(event) bool) (event, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		events, changed := g.line.from(place)
		for _, e := range events {
			if want(e) {
				return e, nil
			}
		}
		place += len(events)
		select {
		case <-changed:
		case <-deadline.C:
			return event{}, fmt.Errorf("%w after %v", errNotCome, patience)
		}
	}
}

// await waits for an event from a place on. If none comes, the test fails with the recent events.
func (g *group) await(t testing.TB, what string, place int, patience time.Duration, want func(event) bool) event {
	t.Helper()
	e, err := g.find(place, patience, want)
	if err != nil {
		t.Fatalf("waiting for %s: %v\n%s", what, err, g.describe())
	}
	return e
}

// describe returns the coordinator's status and the recent events.
func (g *group) describe() string {
	var b bytes.Buffer
	if e, err := g.tell(command{Do: "status"}, 5*time.Second); err != nil {
		fmt.Fprintf(&b, "the coordinator doesn't answer: %v\n", err)
	} else {
		fmt.Fprintf(&b, "the coordinator says:\n%s\n", e.Text)
	}
	if g.more != nil {
		fmt.Fprintln(&b, g.more())
	}
	events, _ := g.line.from(0)
	var lines []string
	for _, e := range events {
		if e.Kind != "reply" {
			lines = append(lines, e.String())
		}
	}
	fmt.Fprintf(&b, "the last events:\n%s\n", strings.Join(lines[max(0, len(lines)-30):], "\n"))
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.all {
		if text := p.err.String(); text != "" {
			fmt.Fprintf(&b, "%s wrote:\n%s\n", p.name, text[max(0, len(text)-1000):])
		}
	}
	return b.String()
}

// train does a run to its end, on a number of workers, and returns how many had ranks.
func (g *group) train(t testing.TB, c command) (busy int) {
	t.Helper()
	place := g.line.place()
	c.Do, c.Seconds = "run", patience.Seconds()
	begun := g.ask(t, c)
	end := g.await(t, "the run to end", place, 3*patience, func(e event) bool { return e.Kind == "end" && e.ID == begun.ID })
	if end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	return begun.Count
}

// setClocks moves the coordinator's clock by some seconds, and the workers' clocks the same amount in the other direction.
func (g *group) setClocks(t testing.TB, by float64) {
	t.Helper()
	g.ask(t, command{Do: stepClock, Seconds: by})
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		if _, err := fmt.Fprintf(w.in, "%s %g\n", stepClock, -by); err != nil {
			t.Fatal(err)
		}
	}
}
