package mesh_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const boss = "coordinator"

// process has the parts of a cluster's process.
type process struct {
	name   string
	id     mesh.ID
	system *actor.ActorSystem
	net    *counted
	port   mesh.Port
	mesh   *mesh.Mesh
	logged *logged
	broken atomic.Int64
	all    []*process  // of the network
	orders chan uint64 // numbers of control messages for the process itself
}

func (p *process) order(_ mesh.ID, c *wire.Control) { p.orders <- c.GetRequest() }

// counted counts the link's outgoing envelopes.
type counted struct {
	transport.Transport
	messages, acks atomic.Int64
	sent           func() // called for each message, if it is not nil
}

func (c *counted) Send(address string, e *wire.Envelope) {
	if e.GetSeq() == 0 {
		c.acks.Add(1)
	} else {
		c.messages.Add(1)
		if c.sent != nil {
			c.sent()
		}
	}
	c.Transport.Send(address, e)
}

// logged stores a process's log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprint(&l.text, r.Level, " ", r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprint(&l.text, " ", a)
		return true
	})
	l.text.WriteByte('\n')
	return nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// join makes a network's processes, which know each other.
func join(t testing.TB, network *transport.Memory, names ...string) []*process {
	t.Helper()
	var all []*process
	for _, name := range names {
		p := &process{name: name, logged: &logged{}, orders: make(chan uint64, 64)}
		p.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
			actor.WithDeadLetterThrottleInterval(time.Nanosecond))
		p.net = &counted{Transport: network.Listen(name, p.system, transport.Handlers{Envelope: p.port.Envelope,
			Streams: map[string]func(net.Conn, transport.Peer){mesh.LaneProtocol: p.port.Accept}})}
		p.port.Resolve(p.system)
		p.begin()
		t.Cleanup(func() {
			p.mesh.Close()
			p.net.Close()
			p.system.Shutdown()
			if n := p.broken.Load(); n > 0 {
				t.Errorf("%s could not send %d times", name, n)
			}
		})
		all = append(all, p)
	}
	for _, p := range all {
		p.all = all
		for _, q := range all {
			if err := p.mesh.SetPeer(q.peer()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// begin begins an incarnation of a process, with a mesh.
func (p *process) begin() {
	p.id = uuid.New()
	p.mesh = mesh.New(mesh.Config{Self: p.id, Name: p.name, System: p.system, Secure: true, Streams: 2, Logger: slog.New(p.logged),
		Control: p.order, Broken: func(mesh.ID, error) { p.broken.Add(1) }}, p.net)
	p.port.Use(p.mesh)
}

func (p *process) peer() *wire.Peer {
	return &wire.Peer{Name: p.name, Incarnation: p.id[:], Address: p.name}
}

// place makes a spec for one process; hosts are by rank.
func (p *process) place(s *actors.Spec, hosts []string) {
	s.Hosts = slices.Clone(hosts)
	for r, h := range hosts {
		if h == p.name {
			s.Hosts[r] = ""
		}
	}
	attempt := s.Attempt
	processes := make(map[string]mesh.ID)
	for _, q := range p.all {
		if q != p && (q.name == boss || slices.Contains(hosts, q.name)) {
			processes[q.name] = q.id
		}
	}
	s.System, s.Attach, s.Detach = p.system, func(c *actors.Codec) { p.mesh.Attach(c, processes) }, func() { p.mesh.Detach(attempt) }
}

// over trains to the end with the ranks in several processes. The first process is the coordinator. spec makes each
// process's spec.
func over(t testing.TB, all []*process, hosts []string, spec func(p *process) actors.Spec) (*actors.Run, []*actors.Stages) {
	t.Helper()
	run, attempt := uuid.New(), uuid.New()
	var parts []*actors.Stages
	for _, p := range all[1:] {
		if !slices.Contains(hosts, p.name) {
			continue
		}
		s := spec(p)
		s.Run, s.Attempt = run, attempt
		p.place(&s, hosts)
		st, err := actors.StartStages(s, boss, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			st.Kill()
			st.Wait()
		})
		parts = append(parts, st)
	}
	s := spec(all[0])
	s.Run, s.Attempt = run, attempt
	all[0].place(&s, hosts)
	r, err := actors.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Kill()
		for _, p := range parts {
			p.Kill()
		}
		r.Wait()
	})
	return r, parts
}

// ended waits for a run's end and that of its stages.
func ended(t testing.TB, run *actors.Run, parts []*actors.Stages, limit time.Duration) actors.Outcome {
	t.Helper()
	select {
	case <-run.Done():
	case <-time.After(limit):
		s := run.Status()
		s.Actors = s.Actors[:4]
		for _, p := range parts {
			s.Actors = append(s.Actors, p.Status().Actors...)
		}
		t.Fatalf("the run does not end:\n%v", s)
	}
	for _, p := range parts {
		select {
		case <-p.Done():
		case <-time.After(limit):
			t.Fatalf("stages do not end:\n%v", p.Status())
		}
	}
	return run.Wait()
}
