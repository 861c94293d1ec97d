package actors_test

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// relay joins actor systems as a cluster joins processes: what leaves one is packed,
// written as bytes, read and unpacked in the other. It loses nothing.
type relay struct {
	t       testing.TB
	mu      sync.Mutex
	systems map[string]*actor.ActorSystem
	codecs  map[string]*actors.Codec
	// unpacking is held by what is unpacked: a codec is of no use once its process has detached.
	unpacking sync.RWMutex
	sending   func(m any) // called before a message leaves; nil: nothing is
}

func newRelay(t testing.TB) *relay {
	return &relay{t: t, systems: make(map[string]*actor.ActorSystem), codecs: make(map[string]*actors.Codec)}
}

// join makes the actor system of an address.
func (r *relay) join(address string) *actor.ActorSystem {
	s := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Nanosecond))
	r.t.Cleanup(s.Shutdown)
	s.ProcessRegistry.Address = address
	s.ProcessRegistry.RegisterAddressResolver(func(*actor.PID) (actor.Process, bool) { return &way{r, address}, true })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.systems[address] = s
	return s
}

func (r *relay) attach(address string) func(*actors.Codec) {
	return func(c *actors.Codec) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.codecs[address] = c
	}
}

// detach forgets the codec of an address: what comes for it is dropped from then on.
func (r *relay) detach(address string) func() {
	return func() {
		r.unpacking.Lock()
		defer r.unpacking.Unlock()
		r.attach(address)(nil)
	}
}

func (r *relay) at(address string) (*actor.ActorSystem, *actors.Codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.systems[address], r.codecs[address]
}

// way is the way out of an address.
type way struct {
	*relay
	from string
}

func (w *way) SendUserMessage(pid *actor.PID, message any) {
	_, m, _ := actor.UnwrapEnvelope(message)
	if w.sending != nil {
		w.sending(m)
	}
	w.unpacking.RLock()
	defer w.unpacking.RUnlock()
	_, out := w.at(w.from)
	system, in := w.at(pid.Address)
	if out == nil || in == nil {
		return
	}
	p, err := out.Pack(m)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer p.Release()
	bytes, err := proto.Marshal(p.Message)
	if err != nil {
		w.t.Error(err)
		return
	}
	var came wire.Message
	if err := proto.Unmarshal(bytes, &came); err != nil {
		w.t.Error(err)
		return
	}
	if !p.Bulk {
		m, err = in.Unpack(&came, w.from)
	} else {
		var lens []int
		for _, part := range p.Parts {
			lens = append(lens, len(part))
		}
		var taken actors.Taken
		if taken, err = in.Take(&came, lens, w.from); err == nil {
			m = taken.Message
			for i, part := range taken.Parts {
				copy(part, p.Parts[i])
			}
		}
	}
	if err != nil {
		w.t.Errorf("%T from %s to %s: %v", m, w.from, pid, err)
		return
	}
	system.Root.Send(system.NewLocalPID(pid.Id), m)
}

func (w *way) SendSystemMessage(pid *actor.PID, message any) {
	w.t.Errorf("%T to %v: system messages stay in their process", message, pid)
}

func (w *way) Stop(pid *actor.PID) { w.t.Errorf("%v is stopped from another process", pid) }

// runOver trains to the end with the ranks in other actor systems, host by host.
func (tr training) runOver(t *testing.T, hosts []string) *log {
	t.Helper()
	l := &log{}
	run, end := tr.startOver(t, l, hosts, nil)
	out := wait(t, run)
	end()
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	return l
}

// startOver begins it. change, if there is one, changes what a host is given; the
// coordinator's is "". end ends the hosts.
func (tr training) startOver(t *testing.T, l *log, hosts []string, change func(host string, s *actors.Spec)) (run *actors.Run, end func()) {
	t.Helper()
	r := newRelay(t)
	r.sending = tr.sending
	spec := tr.spec(t, l)
	spec.Run, spec.Attempt = uuid.New(), uuid.New()
	m, err := stages.NewModel(tr.model)
	if err != nil {
		t.Fatal(err)
	}
	if tr.from != nil {
		spec.Weights = &actors.StoredWeights{Params: m.Params, Source: tr.from.source}
	}
	var parts []*actors.Stages
	for _, host := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		w := tr
		weights := actors.NewWeightReader()
		w.load = weights.Source
		s := w.spec(t, l)
		s.Run, s.Attempt, s.System, s.Data = spec.Run, spec.Attempt, r.join(host), nil
		s.Attach, s.Detach = r.attach(host), r.detach(host)
		for _, at := range hosts {
			if at == host {
				at = ""
			}
			s.Hosts = append(s.Hosts, at)
		}
		if change != nil {
			change(host, &s)
		}
		st, err := actors.StartStages(s, "coordinator", weights)
		if err != nil {
			t.Fatal(err)
		}
		if tr.started != nil {
			tr.started(host, st)
		}
		parts = append(parts, st)
	}
	spec.Hosts, spec.System, spec.Attach, spec.Device = hosts, r.join("coordinator"), r.attach("coordinator"), nil
	spec.Detach = r.detach("coordinator")
	if change != nil {
		change("", &spec)
	}
	return start(t, spec), func() {
		for _, p := range parts {
			p.Kill() // a coordinator that ended in order has told them
			p.Wait()
		}
	}
}

// TestSameBitsInOtherProcesses: losses, norms and weights are those of one process,
// wherever the ranks are, from the first step and from a checkpoint on.
func TestSameBitsInOtherProcesses(t *testing.T) {
	const m = sequences / microbatchSize
	evalLens := []int{10, 10, 7}
	tables := map[string]struct {
		table *scheduler.Table
		cuts  []int
		hosts []string
	}{
		"1 rank":                 {generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m}), nil, []string{"a"}},
		"1f1b, a process each":   {generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: m}), []int{2, 3}, []string{"a", "b", "c"}},
		"1f1b, two in a process": {generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: m}), []int{2, 3}, []string{"b", "a", "a"}},
		"interleaved":            {generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m}), []int{1, 2, 4}, []string{"a", "b"}},
		"zb-v, ends in one process": {generate(t, scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2, Microbatches: m}), []int{1, 2, 4},
			[]string{"a", "b"}},
	}
	for _, model := range families {
		alone := training{model: model, threads: 1, steps: 4, evalLens: evalLens, table: tables["1 rank"].table}
		want := alone.run(t)
		half := alone
		half.steps = 2
		from := half.run(t)
		for name, c := range tables {
			t.Run(fmt.Sprint(model.Family, " ", name), func(t *testing.T) {
				tr := training{model: model, threads: 2, steps: 4, evalLens: evalLens, table: c.table, cuts: c.cuts}
				got := tr.runOver(t, c.hosts)
				if a, b := got.figures(), want.figures(); !slices.Equal(a, b) {
					t.Errorf("figures %x, in one process %x", a, b)
				}
				sameState(t, "the end", want.saves[len(want.saves)-1], got.saves[len(got.saves)-1])
				tr.from = &from.saves[len(from.saves)-1]
				again := tr.runOver(t, c.hosts)
				if a, b := again.figures(), want.figures(); !slices.Equal(a, b[len(b)-len(a):]) {
					t.Errorf("from step 2 on figures %x, in one process %x", a, b)
				}
				sameState(t, "the end from step 2 on", want.saves[len(want.saves)-1], again.saves[len(again.saves)-1])
			})
		}
	}
}
