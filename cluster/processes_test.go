package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/scheduler"
)

// Environment variables that make the test binary a process of a cluster. A process can have only one transport, so the tests
// themselves have none.
const (
	roleVariable     = "TROUPE_CLUSTER_ROLE"
	settingsVariable = "TROUPE_CLUSTER_SETTINGS"
)

func TestMain(m *testing.M) {
	var play func() error
	switch os.Getenv(roleVariable) {
	case "coordinator":
		play = playCoordinator
	case "worker":
		play = playWorker
	default:
		goleak.VerifyTestMain(m)
		return
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// settings are a process's settings.
type settings struct {
	Name     string // of a worker
	Join     string // what a worker joins
	Listen   string
	CertFile string // of a worker
	Dir      string // of the coordinator's authority
	Silence  time.Duration
	Lease    time.Duration
	Threads  int
	Own      []string      // schedules that its program registers
	View     [2]string     // of a worker: paths that begin with the first lie elsewhere, in the second
	SlowStep int           // of a worker: it stops in the midst of writing its part of this checkpoint
	Go       string        // until this file is there
	Denied   bool          // a worker may not write to checkpoints
	Steady   time.Duration // that a worker must be a member before a run is regrouped to use it
	HandOver time.Duration // that a step may take before the ranks of a drained worker move
	DieAt    string        // the point of a run's beginning at which the coordinator dies
	Ahead    time.Duration // that a worker's clock is wrong by
	FreeNow  int64         // free memory of a worker's host, in bytes; 0: what there is
	Grace    time.Duration // of a worker
	Faults   []pointFault  // of a worker, one after the other
}

// readSettings reads the settings, and registers the names in them.
func readSettings() (s settings, err error) {
	err = json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s)
	for _, name := range s.Own {
		scheduler.Register(name, scheduler.Generator{Rows: func(s scheduler.Spec) ([][]scheduler.Action, error) {
			s.Schedule = scheduler.GPipe
			t, err := scheduler.Generate(s)
			if err != nil {
				return nil, err
			}
			return t.Ranks, nil
		}})
	}
	return s, err
}

// pointFault is the death of the worker of a rank at a point: when a message leaves or has come, and before its actor gets it.
type pointFault struct {
	At    string // such as "out StageDone"; see pointOf
	Rank  int
	Step  int64 // the first at which it happens
	Count int   // of the times that the process has come to the point in these steps; 0: the first
	Stop  bool  // it does not die, it stops
	// It does not die, it has lost what it has kept for the attempt that it is assigned, at "in assign".
	Forget bool
	Done   string // this file says that it has happened, with the process's number
	After  string // it happens when this file is there; "": at once
}

// tapFaults makes a worker's process die at points. It is nil where processes cannot be stopped.
var tapFaults func([]pointFault) func(out bool, target string, message any)

// stepClock moves a process's clock by some seconds. A coordinator gets it as a command, a worker as a line on its standard
// input: "step clock -3600".
const stepClock = "step clock"

// command is a test's command to a process, a line of JSON on its standard input.
type command struct {
	ID       int
	Do       string   // "token", "run", "change", "requests", "status", "goroutines", "drain", "lower generation", stepClock
	Seconds  float64  // of a token's life; for which a run waits for all its workers; by which the clock is set
	Worker   string   // to drain
	Workers  int      // that a run begins with; how much lower the generation is to be
	Config   string   // of a run
	Sets     []string // of a run
	FromStep int
	Operator bool // the token is one's
	Snapshot bool // of a run: take one at each checkpoint
	Change   troupe.Change
	Requests []troupe.Change // of a run in this process
}

// event is a process's event, a line of JSON on its standard output.
type event struct {
	At    time.Time
	Kind  string // "listening", "reply", "log", "step", "checkpoint", "pause", "resume", "restart", "regroup", "warning", "stall", "end"
	ID    int    // of the command that it answers
	Step  int
	Text  string
	Error string
	Attrs map[string]string // of a log line
	Count int               // workers of a run, goroutines
	Rate  float64           // of a step
}

func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.At.Format("15:04:05.000"), e.Kind)
	if e.Step > 0 {
		fmt.Fprintf(&b, " %d", e.Step)
	}
	if e.Text != "" {
		fmt.Fprintf(&b, " %s", e.Text)
	}
	if len(e.Attrs) > 0 {
		fmt.Fprintf(&b, " %v", e.Attrs)
	}
	if e.Error != "" {
		fmt.Fprintf(&b, " error: %s", e.Error)
	}
	return b.String()
}

// teller writes events.
type teller struct {
	mu  sync.Mutex
	out *json.Encoder
}

func newTeller() *teller { return &teller{out: json.NewEncoder(os.Stdout)} }

func (t *teller) tell(e event) {
	e.At = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.out.Encode(e) // the test has ended
}

// logHandler makes log lines events.
type logHandler struct {
	*teller
	attrs []slog.Attr
}

func (h logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (h logHandler) WithGroup(string) slog.Handler                    { return h }
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return h
}

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	e := event{Kind: "log", Text: r.Message, Attrs: make(map[string]string)}
	note := func(a slog.Attr) bool { e.Attrs[a.Key] = a.Value.String(); return true }
	for _, a := range h.attrs {
		note(a)
	}
	r.Attrs(note)
	h.tell(e)
	return nil
}

// conductor is the coordinator's process.
type conductor struct {
	*teller
	c       *cluster.Coordinator
	running sync.WaitGroup

	mu  sync.Mutex
	run *troupe.Run
}

// playCoordinator runs a coordinator that obeys the commands on its standard input, until that ends.
func playCoordinator() error {
	s, err := readSettings()
	if err != nil {
		return err
	}
	p := &conductor{teller: newTeller()}
	cfg := cluster.Config{Listen: s.Listen, Dir: s.Dir, Silence: s.Silence, Lease: s.Lease, Logger: slog.New(logHandler{teller: p.teller})}
	cfg.SetSteady(s.Steady)
	cfg.SetHandOver(s.HandOver)
	cfg.SetAtPoint(func(point string) {
		if point == s.DieAt {
			os.Exit(1) // nothing is closed, deferred or synced
		}
	})
	p.c, err = cluster.NewCoordinator(cfg)
	if err != nil {
		return err
	}
	defer p.c.Close()
	p.tell(event{Kind: "listening", Text: p.c.Address()})
	ctx, cancel := context.WithCancel(context.Background())
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() { // ends with the process
		<-interrupted
		p.c.Shutdown(ctx)
		os.Exit(0)
	}()
	in := json.NewDecoder(os.Stdin)
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			if err == io.EOF {
				err = nil
			}
			cancel()
			p.running.Wait()
			return err
		}
		switch c.Do {
		case "token":
			role := cluster.RoleWorker
			if c.Operator {
				role = cluster.RoleOperator
			}
			token, err := p.c.NewToken(role, seconds(c.Seconds))
			p.reply(c, event{Text: token.String()}, err)
		case "status":
			p.reply(c, event{Text: p.status(), Count: runtime.NumGoroutine()}, nil)
		case "goroutines":
			p.reply(c, event{Text: goroutines(), Count: runtime.NumGoroutine()}, nil)
		case stepClock:
			clock.Step(seconds(c.Seconds))
			p.reply(c, event{}, nil)
		case "drain":
			p.reply(c, event{}, p.c.Drain(c.Worker))
		case "lower generation":
			p.c.LowerGeneration(uint64(c.Workers))
			p.reply(c, event{}, nil)
		case "change", "requests":
			p.mu.Lock()
			run := p.run
			p.mu.Unlock()
			var err error
			if c.Do == "change" {
				err = run.Change(c.Change)
			}
			p.reply(c, event{Text: run.Status().Requested()}, err)
		case "run":
			p.running.Add(1)
			go func() { // ends with the run
				defer p.running.Done()
				p.train(ctx, c)
			}()
		default:
			p.reply(c, event{}, fmt.Errorf("unknown command %q", c.Do))
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (p *conductor) reply(c command, e event, err error) {
	e.Kind, e.ID = "reply", c.ID
	if err != nil {
		e.Error = err.Error()
	}
	p.tell(e)
}

// goroutines lists this process's goroutines, those in the same place together.
func goroutines() string {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a Builder takes everything
	return b.String()
}

// status returns the status of all actors.
func (p *conductor) status() string {
	var b strings.Builder
	for _, m := range p.c.Members() {
		fmt.Fprintf(&b, "worker %s at %s, heard %.1f s ago, ranks %v\n", m.Name, m.Address, time.Since(m.Heard).Seconds(), m.Ranks)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		b.WriteString("no run")
	} else {
		b.WriteString(p.run.Status().String())
	}
	return b.String()
}

// train does a run.
func (p *conductor) train(ctx context.Context, c command) {
	run, busy, err := p.begin(ctx, c)
	p.reply(c, event{Count: busy}, err)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.run = run
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, run.Kill)
	defer stop()
	var wrong error
	for e := range run.Events() {
		p.tell(told(e))
		if saved, ok := e.(troupe.CheckpointEvent); ok && c.Snapshot && !saved.Weights {
			wrong = errors.Join(wrong, takeSnapshot(ctx, run, saved.Step))
		}
	}
	result, err := run.Wait()
	err = errors.Join(err, wrong)
	p.mu.Lock()
	p.run = nil
	p.mu.Unlock()
	end := endOf(result, err)
	end.ID = c.ID
	p.tell(end)
}

// told converts a run's event to the test's form.
func told(e troupe.Event) event {
	switch e := e.(type) {
	case troupe.StepEvent:
		one := event{Kind: "step", Step: e.Step}
		if e.LR != nil {
			one.Rate = *e.LR
		}
		return one
	case troupe.PauseEvent:
		if e.Paused {
			return event{Kind: "pause", Step: int(e.Step)}
		}
		return event{Kind: "resume", Step: int(e.Step)}
	case troupe.CheckpointEvent:
		if e.Weights { // no snapshot, and no run resumes from it
			return event{Kind: "best", Step: int(e.Step)}
		}
		return event{Kind: "checkpoint", Step: int(e.Step)}
	case troupe.RestartEvent:
		return event{Kind: "restart", Text: e.Err.Error(), Count: e.Restart, Attrs: map[string]string{"why": e.Why}}
	case troupe.ReplaceEvent:
		return event{Kind: "replace", Step: int(e.Step), Text: e.Err.Error(), Attrs: map[string]string{"source": e.Source,
			"bytes": fmt.Sprint(e.Bytes), "kept": fmt.Sprint(e.KeptBytes), "halted": e.Halted.String(), "found": e.Found.String(),
			"loaded": e.Loaded.String()}}
	case troupe.RegroupEvent:
		return event{Kind: "regroup", Step: int(e.Step), Text: fmt.Sprintf("leaving %v, free %v", e.Leaving, e.Free),
			Attrs: map[string]string{"lost": strings.Join(e.Lost, " ")}}
	case troupe.WarningEvent:
		return event{Kind: "warning", Text: e.Text}
	case troupe.StallEvent:
		return event{Kind: "stall", Text: strings.Join(append(e.Status.Chain(), e.Status.Explain()), "\n")}
	}
	return event{Kind: fmt.Sprintf("%T", e)}
}

func endOf(result troupe.Result, err error) event {
	e := event{Kind: "end", Step: result.Step, Text: result.Dir}
	if result.Stopped {
		e.Count = 1
	}
	if err != nil {
		e.Error = err.Error()
	}
	return e
}

// begin waits for free workers, starts a run, and returns its number of workers.
func (p *conductor) begin(ctx context.Context, c command) (run *troupe.Run, busy int, err error) {
	cfg, err := config.Parse("test.toml", []byte(c.Config), c.Sets, nil)
	if err != nil {
		return nil, 0, err
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		free := 0
		for _, m := range p.c.Members() {
			if m.Run == uuid.Nil {
				free++
			}
		}
		if free >= c.Workers || free > 0 && time.Since(began) > seconds(c.Seconds) {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	run, err = troupe.Start(ctx, cfg, troupe.Options{Hosts: p.c.Hosts(), FromStep: c.FromStep, Requests: c.Requests,
		Logger: slog.New(logHandler{teller: p.teller})})
	if err != nil {
		return nil, 0, err
	}
	for _, m := range p.c.Members() {
		if len(m.Ranks) > 0 {
			busy++
		}
	}
	return run, busy, nil
}

// playWorker runs a worker that reads its token from the first line of its standard input, until that ends.
func playWorker() error {
	s, err := readSettings()
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the token: %w", err)
	}
	cfg := cluster.WorkerConfig{Join: s.Join, Name: s.Name, Listen: s.Listen, CertFile: s.CertFile, Threads: s.Threads,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	cfg.Grace = s.Grace
	cfg.SetAhead(s.Ahead)
	if s.FreeNow > 0 {
		device.HostFreeBytes = func() int64 { return s.FreeNow }
	}
	if len(s.Faults) > 0 {
		cfg.SetTap(tapFaults(s.Faults))
	}
	if line = strings.TrimSpace(line); line != "" {
		if cfg.Token, err = cluster.ParseToken(line); err != nil {
			return err
		}
	}
	runtime.GOMAXPROCS(s.Threads + 1)
	t := newTeller()
	if s.View[0] != "" {
		cluster.SetFolderView(func(path string) string {
			if rest, ok := strings.CutPrefix(path, s.View[0]); ok {
				return s.View[1] + rest
			}
			return path
		})
	}
	if s.Denied {
		cluster.SetWriteOwn(func(context.Context, checkpoint.FS, string, int, string, []checkpoint.Own) ([]uint32, error) {
			return nil, fs.ErrPermission
		})
	}
	if s.SlowStep > 0 {
		slowly(s, t)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	go func() { // ends with the standard input
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				cancel()
				return
			}
			if s, ok := strings.CutPrefix(strings.TrimSpace(line), stepClock+" "); ok {
				by, err := strconv.ParseFloat(s, 64)
				clock.Step(seconds(by))
				t.tell(event{Kind: "clock", Text: fmt.Sprint(by, err)})
				continue
			}
			t.tell(event{Kind: "reply", Text: goroutines(), Count: runtime.NumGoroutine()})
		}
	}()
	return cluster.Work(interrupted, cfg)
}
