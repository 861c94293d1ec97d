package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
)

var (
	killsSeed   = flag.Uint64("kills.seed", 0, "seed of TestKills's faults; 0: another each time")
	killsFaults = flag.Int("kills.faults", 20, "number of TestKills's faults")
	killsSteps  = flag.Int("kills.steps", 300, "steps of TestKills's run")
)

// killsRate is the first learning rate of TestKills's run.
const killsRate = 2e-3

// killsSilence is cluster.silence_s of TestKills.
const killsSilence = time.Second

// killsDrain is how long a worker may take to leave when it is told to: shorter than its grace time.
const killsDrain = 15 * time.Second

// keeper restarts a group's workers when they die, as systemd does.
type keeper struct {
	g       *group
	running sync.WaitGroup
	stop    chan struct{}
}

// keep restarts a worker whenever it dies. Its certificate must exist.
func (k *keeper) keep(name string, pause func() time.Duration) {
	k.running.Add(1)
	go func() { // ends with stop
		defer k.running.Done()
		for {
			k.g.mu.Lock()
			p := k.g.workers[name]
			k.g.mu.Unlock()
			select {
			case <-p.ended:
			case <-k.stop:
				return
			}
			select {
			case <-time.After(pause()):
			case <-k.stop:
				return
			}
			p, err := k.g.tryStart("worker", k.g.workerSettings(name), "")
			if err != nil {
				k.g.line.add(event{At: time.Now(), Kind: "start", Text: name, Error: err.Error()})
				if p == nil {
					return
				}
			}
			k.g.mu.Lock()
			k.g.workers[name] = p
			k.g.mu.Unlock()
		}
	}()
}

// fault is a fault that TestKills caused.
type fault struct {
	number int
	kind   string // "kill worker", "stop worker", "drain worker", "kill coordinator", "interrupt coordinator", "pause", "rate", "clocks"
	worker string
	order  bool // an operator's or the clock's, which no process suffers from
	hasty  bool // without waiting for the run to recover from the one before
	length time.Duration
	at     time.Time
	place  int // in the timeline
	step   int
}

func (f fault) String() string {
	text := f.kind
	if f.worker != "" {
		text += " " + f.worker
	}
	if f.length > 0 {
		text += fmt.Sprintf(" %.1f s", f.length.Seconds())
	}
	if f.hasty {
		text += " (at once)"
	}
	return text
}

// lastStep is the last reported step.
func lastStep(events []event) int {
	for _, e := range slices.Backward(events) {
		if e.Kind == "step" {
			return e.Step
		}
	}
	return 0
}

// present returns the workers that are members, by the coordinator's events.
func present(events []event) []string {
	in := make(map[string]bool)
	for _, e := range events {
		switch {
		case e.Kind == "listening":
			clear(in)
		case e.Kind == "log" && e.Text == "worker joined":
			in[e.Attrs["worker"]] = true
		case e.Kind == "log" && e.Text == "worker left":
			in[e.Attrs["worker"]] = false
		}
	}
	var names []string
	for name, is := range in {
		if is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestKills kills, freezes and drains workers, kills and interrupts the coordinator, pauses and resumes the run, changes its
// learning rate and sets the clocks, at random times of one run in each of several layouts. The run must complete
// without help and give the same bits as an undisturbed one.
// It runs only with TROUPE_KILLS=1 (make check-kills).
func TestKills(t *testing.T) {
	if os.Getenv("TROUPE_KILLS") != "1" {
		t.Skip("takes minutes: run it with TROUPE_KILLS=1 (make check-kills)")
	}
	seed := *killsSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("go test ./cluster -run TestKills -kills.seed %d", seed)
	t.Run("pipeline", func(t *testing.T) { testKills(t, seed, "pipeline.stages=3") })
	t.Run("shadows", func(t *testing.T) { testKills(t, seed, "pipeline.stages=3", `cluster.shadow="on"`) })
	t.Run("grid, tp 1, 2", func(t *testing.T) {
		testKills(t, seed, "parallel.tensor=[1, 2]", "parallel.data=2", "pipeline.stages=2")
	})
	t.Run("grid", func(t *testing.T) { testKills(t, seed, "parallel.tensor=2", "parallel.data=2", "pipeline.stages=2") })
	t.Run("grid, muon", func(t *testing.T) {
		testKills(t, seed, "parallel.tensor=2", "parallel.data=2", "parallel.zero=1", "pipeline.stages=2", "optimizer.name=muon")
	})
	t.Run("replicas, ahead", func(t *testing.T) {
		testKills(t, seed, "parallel.data=3", "parallel.zero=1", "pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true")
	})
	t.Run("shared weights", func(t *testing.T) {
		testKills(t, seed, "parallel.data=2", "parallel.zero=3", "model.hidden=128", "model.layers=12", "pipeline.stages=2", "batch.sequences=8",
			"batch.microbatch=2")
	})
}

// testKills runs TestKills with one layout.
func testKills(t *testing.T, seed uint64, layout ...string) {
	k := &kills{t: t, random: rand.New(rand.NewPCG(seed, 1)), steps: *killsSteps}
	base := []string{fmt.Sprintf("run.steps=%d", k.steps), "run.checkpoint_every=10", "run.eval_every=50", "run.keep=2",
		fmt.Sprintf("optimizer.lr=%g", killsRate), fmt.Sprintf("optimizer.min_lr=%g", killsRate/10),
		"cluster.silence_s=1", "cluster.max_restarts=20",
		"model.hidden=64", "model.context=64", "batch.sequences=64", "batch.microbatch=4"} // a step takes a tenth of a second
	base = append(base, layout...)
	want := filepath.Join(t.TempDir(), "want")
	for step := int64(40); step < int64(k.steps); step += 60 { // known before, so that the undisturbed run has them too
		lr := 1e-3 * float64(1+step%7)
		k.rates = append(k.rates, troupe.Change{Kind: troupe.ChangeRate, Step: step, LR: lr, MinLR: lr / 10})
	}
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, base), Requests: k.rates})

	k.g = newGroup(t, &group{boss: settings{Silence: killsSilence}})
	keep := &keeper{g: k.g, stop: make(chan struct{})}
	t.Cleanup(func() {
		for _, timer := range k.wake {
			timer.Stop()
		}
		k.g.mu.Lock()
		for _, p := range k.g.workers {
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		}
		k.g.mu.Unlock()
		close(keep.stop)
		keep.running.Wait()
	})
	k.g.join(t, workers(3)...)
	pauses := rand.New(rand.NewPCG(seed, 2))
	var mu sync.Mutex
	for _, name := range workers(3) {
		keep.keep(name, func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(pauses.IntN(1000)) * time.Millisecond
		})
	}
	out := filepath.Join(t.TempDir(), "out")
	k.run = command{Config: smallRun, Sets: keys(t, out, base)}
	k.began = time.Now()
	k.begin()
	for _, c := range k.rates {
		k.ask(c)
	}
	window := k.steps / (*killsFaults + 1)
	for i := range *killsFaults {
		hasty := i%4 == 3
		if !hasty {
			k.await(i*window + 1 + k.random.IntN(window))
		}
		k.pause(hasty)
		k.strike(hasty)
	}
	end := k.g.await(t, "the run to end", k.place(), 3*patience, func(e event) bool { return e.Kind == "end" })
	if end.Error != "" {
		t.Errorf("the run: %s\n%s", end.Error, k.g.describe())
	}
	k.table(end)
	sameRun(t, want, out, k.steps)
}

// kills is the state of TestKills.
type kills struct {
	t      *testing.T
	g      *group
	random *rand.Rand
	steps  int
	run    command
	began  time.Time
	faults []fault
	rates  []troupe.Change // at their steps
	ask    func(troupe.Change)
	clocks float64        // seconds that they were set forward by
	asking sync.WaitGroup // a pause that is to be taken back
	wake   []*time.Timer
	awake  map[string]time.Time // when a stopped worker goes on
}

// hit reports whether a worker still suffers from a fault: it is frozen, or was killed and has not joined again.
func (k *kills) hit(name string, events []event) bool {
	for _, f := range k.faults {
		if f.worker == name && f.length == 0 && !slices.ContainsFunc(events[f.place:], joined(name)) {
			return true
		}
	}
	return time.Now().Before(k.awake[name])
}

// place is the place of the last fault in the timeline.
func (k *kills) place() int {
	if len(k.faults) == 0 {
		return 0
	}
	return k.faults[len(k.faults)-1].place
}

// begin submits the run and follows it, as an operator does.
func (k *kills) begin() {
	k.t.Helper()
	token, err := cluster.ParseToken(k.g.ask(k.t, command{Do: "token", Operator: true, Seconds: 3600}).Text)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	client, err := cluster.NewClient(ctx, cluster.ClientConfig{Address: k.g.address, Token: token})
	var id string
	if err == nil {
		id, err = client.Submit(ctx, cluster.Submission{Config: []byte(k.run.Config), Sets: k.run.Sets})
	}
	var run *cluster.Followed
	if err == nil {
		run, err = client.Follow(ctx, id, cluster.FollowOptions{})
	}
	if err != nil {
		cancel()
		k.t.Fatalf("%v\n%s", err, k.g.describe())
	}
	k.g.more = func() string {
		ctx, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		summary, status, err := client.Status(ctx, id)
		return fmt.Sprintf("the run is %s, at step %d, with %d restarts, %s; %v\n%v", summary.State, summary.Step, summary.Restarts,
			summary.Error, err, status)
	}
	var following sync.WaitGroup
	following.Add(1)
	go func() { // ends with the run, or with ctx
		defer following.Done()
		for e := range run.Events() {
			k.tell(told(e))
		}
		k.tell(endOf(run.Wait()))
	}()
	k.ask = func(c troupe.Change) {
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			_, err := client.Change(ctx, id, c)
			if err == nil || ctx.Err() != nil {
				return
			}
			if time.Now().After(deadline) {
				k.t.Errorf("%v: %v", c, err)
				return
			}
		}
	}
	k.t.Cleanup(func() {
		cancel()
		k.asking.Wait()
		following.Wait()
	})
}

func (k *kills) tell(e event) {
	e.At = time.Now()
	k.g.line.add(e)
}

// ended fails the test when the run has ended.
func ended(e event) bool { return e.Kind == "end" }

// await waits until the run has completed a step after the last fault.
func (k *kills) await(step int) {
	k.t.Helper()
	what := fmt.Sprintf("step %d, after %d faults", step, len(k.faults))
	if len(k.faults) > 0 {
		step = max(step, k.faults[len(k.faults)-1].step+1)
	}
	e := k.g.await(k.t, what, k.place(), patience, func(e event) bool { return e.Kind == "step" && e.Step >= step || ended(e) })
	if ended(e) {
		k.t.Fatalf("the run ended at step %d after %d faults: %s\n%s", e.Step, len(k.faults), e.Error, k.g.describe())
	}
}

// pause waits for a random time.
func (k *kills) pause(hasty bool) {
	most := 50 * time.Millisecond
	if hasty {
		most = 300 * time.Millisecond
	}
	time.Sleep(time.Duration(k.random.Int64N(int64(most))))
}

// strike causes a fault.
func (k *kills) strike(hasty bool) {
	k.t.Helper()
	var targets []string
	k.g.await(k.t, "a worker to be there", 0, patience, func(event) bool {
		events, _ := k.g.line.from(0)
		targets = slices.DeleteFunc(present(events), func(name string) bool { return k.hit(name, events) })
		return len(targets) > 0
	})
	events, _ := k.g.line.from(0)
	if e := events[len(events)-1]; slices.ContainsFunc(events, ended) {
		k.t.Fatalf("the run ended after %d faults, at step %d: %s\n%s", len(k.faults), lastStep(events), e.Error, k.g.describe())
	}
	f := fault{number: len(k.faults) + 1, hasty: hasty, place: len(events), step: lastStep(events)}
	kind := k.random.IntN(16)
	f.worker = targets[k.random.IntN(len(targets))]
	k.g.mu.Lock()
	target := k.g.workers[f.worker]
	k.g.mu.Unlock()
	var err error
	f.at = time.Now()
	switch {
	case kind < 5:
		f.kind = "kill worker"
		err = target.cmd.Process.Kill()
	case kind < 8:
		f.kind, f.length = "stop worker", time.Second+time.Duration(k.random.Int64N(int64(5*time.Second)))
		err = target.cmd.Process.Signal(syscall.SIGSTOP)
		if k.awake == nil {
			k.awake = make(map[string]time.Time)
		}
		k.awake[f.worker] = f.at.Add(f.length + killsSilence)
		k.wake = append(k.wake, time.AfterFunc(f.length, func() {
			_ = target.cmd.Process.Signal(syscall.SIGCONT)
			k.g.line.add(event{At: time.Now(), Kind: "woken", Text: f.worker})
		}))
	case kind < 9:
		f.kind = "drain worker"
		err = target.cmd.Process.Signal(syscall.SIGINT)
	case kind < 13:
		f.kind, f.worker = "kill coordinator", ""
		if kind >= 11 {
			f.kind = "interrupt coordinator"
		}
		k.g.mu.Lock()
		lead := k.g.lead
		k.g.mu.Unlock()
		if kind < 11 {
			err = lead.kill()
		} else if err = lead.cmd.Process.Signal(syscall.SIGINT); err == nil {
			<-lead.ended
		}
	default:
		k.order(&f, kind)
	}
	if err != nil {
		k.t.Fatalf("%v: %v", f, err)
	}
	k.g.line.add(event{At: f.at, Kind: "fault", Text: f.String()})
	k.faults = append(k.faults, f)
	if f.worker == "" && !f.order {
		k.g.startCoordinator(k.t) // which takes the run up
	}
}

// order makes a request as an operator, or sets the clocks.
func (k *kills) order(f *fault, kind int) {
	f.order, f.worker = true, ""
	switch kind {
	case 13:
		f.kind, f.length = "pause", time.Duration(k.random.Int64N(int64(2*time.Second)))
		k.ask(troupe.Change{Kind: troupe.ChangePause})
		k.asking.Add(1)
		go func() { // ends with the pause
			defer k.asking.Done()
			time.Sleep(f.length)
			k.ask(troupe.Change{Kind: troupe.ChangeResume})
		}()
	case 14:
		f.kind = "rate" // as it is, since the undisturbed run has none at a moment that nobody knows
		current := troupe.Change{Kind: troupe.ChangeRate, LR: killsRate, MinLR: killsRate / 10}
		for _, c := range k.rates {
			if c.Step <= int64(f.step)+1 {
				current.LR, current.MinLR = c.LR, c.MinLR
			}
		}
		if next := int64(f.step) + 20; !slices.ContainsFunc(k.rates, func(c troupe.Change) bool {
			return c.Step > int64(f.step)-20 &&
				c.Step < next
		}) {
			k.ask(current)
		}
	default:
		f.kind = "clocks"
		by := -k.clocks // back, and so never further off than certificates allow
		if by == 0 {
			by = float64(k.random.IntN(200) - 100)
		}
		k.clocks += by
		k.g.ask(k.t, command{Do: stepClock, Seconds: by})
		k.g.mu.Lock()
		for _, w := range k.g.workers {
			_, _ = fmt.Fprintf(w.in, "%s %g\n", stepClock, -by) // unless it is dead
		}
		k.g.mu.Unlock()
	}
}

// table prints the cost of each fault, and checks how soon it was detected.
func (k *kills) table(end event) {
	k.t.Helper()
	events, _ := k.g.line.from(0)
	var b strings.Builder
	fmt.Fprintf(&b, "%3s  %-34s %5s %10s %8s %9s %9s\n", "#", "fault", "step", "noticed s", "lost s", "restarts", "replaced")
	total, totalReplaced := 0, 0
	for i, f := range k.faults {
		until := len(events) // the next fault
		if i+1 < len(k.faults) {
			until = k.faults[i+1].place
		}
		restarts, replaced, noticed := 0, 0, "-"
		for _, e := range events[f.place:until] {
			switch e.Kind {
			case "restart":
				restarts++
			case "replace":
				replaced++
			}
		}
		total, totalReplaced = total+restarts, totalReplaced+replaced
		within := time.Second
		switch {
		case f.length > 0:
			within = killsSilence + time.Second
		case f.kind == "drain worker": // the run writes a checkpoint first
			within = killsDrain
		}
		switch took, ok := after(f, events, gone(f.worker)); {
		case f.order:
		case f.worker == "":
			if took, ok := after(f, events, func(e event) bool { return e.Kind == "listening" }); ok {
				noticed = fmt.Sprintf("(%.2f)", took.Seconds())
			}
		case ok:
			noticed = fmt.Sprintf("%.2f", took.Seconds())
			if took > within {
				k.t.Errorf("fault %d, %v: noticed after %.2f s, want %.2f at most", f.number, f, took.Seconds(), within.Seconds())
			}
		case f.length > 0 && f.length < killsSilence+500*time.Millisecond || k.coordinatorKilled(f, within):
		default:
			k.t.Errorf("fault %d, %v: not noticed", f.number, f)
		}
		fmt.Fprintf(&b, "%3d  %-34s %5d %10s %8s %9d %9d\n", f.number, f, f.step, noticed, lost(f, events, until), restarts, replaced)
	}
	k.t.Logf("%d faults in %d steps, %d restarts, %d workers replaced, %.1f s in all:\n%s", len(k.faults), k.steps, total, totalReplaced,
		end.At.Sub(k.began).Seconds(), &b)
}

// coordinatorKilled reports whether the coordinator was killed soon after a fault.
func (k *kills) coordinatorKilled(f fault, within time.Duration) bool {
	return slices.ContainsFunc(k.faults, func(o fault) bool {
		return o.worker == "" && !o.order && o.at.After(f.at) && o.at.Before(f.at.Add(within))
	})
}

// after returns the time from a fault to an event, unless the coordinator was killed in between.
func after(f fault, events []event, want func(event) bool) (time.Duration, bool) {
	for _, e := range events[f.place:] {
		if want(e) && e.At.After(f.at) {
			return e.At.Sub(f.at), true
		}
		if e.Kind == "listening" {
			break
		}
	}
	return 0, false
}

// lost returns the time until the run was at its step before the fault again.
func lost(f fault, events []event, until int) string {
	again := -1 // the first restart before the next fault
	step := f.step
	for i, e := range events[f.place:until] {
		if e.Kind == "restart" || e.Kind == "listening" {
			again = f.place + i
			break
		}
		if e.Kind == "step" {
			step = max(step, e.Step)
		}
	}
	from := f.place
	if again >= 0 {
		from = again
	} else {
		step = f.step + 1
	}
	for _, e := range events[from:] {
		if e.Kind == "step" && e.Step >= step || ended(e) {
			return fmt.Sprintf("%.2f", e.At.Sub(f.at).Seconds())
		}
	}
	return "-"
}
