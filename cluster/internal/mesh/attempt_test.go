package mesh_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// recorder is an actor that stores its messages.
type recorder struct {
	mu   sync.Mutex
	got  []any
	came chan struct{} // has room for one
}

func (r *recorder) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case actor.SystemMessage, actor.AutoReceiveMessage, *actor.Started:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, ctx.Message())
	select {
	case r.came <- struct{}{}:
	default:
	}
}

func (r *recorder) messages() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]any(nil), r.got...)
}

// await waits for a number of messages.
func (r *recorder) await(t testing.TB, n int) {
	t.Helper()
	late := time.After(time.Minute)
	for len(r.messages()) < n {
		select {
		case <-r.came:
		case <-late:
			t.Fatalf("%d of %d messages came", len(r.messages()), n)
		}
	}
}

func (p *process) record(t testing.TB, id string) *recorder {
	t.Helper()
	r := &recorder{came: make(chan struct{}, 1)}
	if _, err := p.system.Root.SpawnNamed(actor.PropsFromFunc(r.Receive), id); err != nil {
		t.Fatal(err)
	}
	return r
}

// pair returns two workers of an attempt whose coordinator is silent. Their stages wait, and the test sends for them.
type pair struct {
	network    *transport.Memory
	all        []*process // coordinator, a, b
	run, id    uuid.UUID
	a, b       *process
	stagesB    *actors.Stages
	to         *actor.PID // a recorder at b
	recorder   *recorder
	supervisor string
}

func newPair(t testing.TB) *pair {
	t.Helper()
	table, err := scheduler.Generate(scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 2})
	if err != nil {
		t.Fatal(err)
	}
	c := &pair{network: transport.NewMemory(), run: uuid.New(), id: uuid.New()}
	c.all = join(t, c.network, boss, "a", "b")
	c.a, c.b = c.all[1], c.all[2]
	for _, p := range []*process{c.a, c.b} {
		s := virtualRun(table, 1)
		s.Run, s.Attempt = c.run, c.id
		p.place(&s, []string{"a", "b"})
		st, err := actors.StartStages(s, boss, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			st.Kill()
			st.Wait()
		})
		c.stagesB = st
	}
	c.supervisor = actors.SupervisorID(c.id)
	c.recorder = c.b.record(t, c.supervisor+"/recorder")
	c.to = actor.NewPID("b", c.supervisor+"/recorder")
	return c
}

func (c *pair) header(order int) actors.Header {
	return actors.Header{Run: c.run, Attempt: c.id, Step: 1, Order: int64(order)}
}

// transfer makes a message with a tensor whose numbers are all those of the message.
func (c *pair) transfer(t testing.TB, arena tensorops.Arena, number, count int) *actors.Transfer {
	t.Helper()
	x, err := tensorops.NewTensor(arena, tensorops.Float32, count)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := 0, tensorops.Elements[float32](x); i < count; i++ {
		v[i] = float32(number)
	}
	return &actors.Transfer{Header: c.header(number), To: 1, Rank: 1, Microbatch: int32(number), Tensor: x}
}

// TestEachOnce: whatever is lost, repeated, late or cut, each message of an actor to another process arrives once. Those
// without tensors arrive in order, those with tensors complete.
func TestEachOnce(t *testing.T) {
	const messages = 250
	c := newPair(t)
	c.network.SetFaults(3, transport.Faults{Drop: 0.03, Duplicate: 0.1, Delay: 300 * time.Microsecond})
	memory := tensorops.NewHostMemory(0)
	defer memory.Close()
	arena := memory.NewArena("sender")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		r := rand.New(rand.NewPCG(3, 1))
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.IntN(60)) * time.Millisecond):
				c.network.Cut("a", "b")
			}
		}
	}()
	for i := range messages {
		c.a.system.Root.Send(c.to, &actors.Credit{Header: c.header(i), Kind: scheduler.BackwardEdge, Edge: 1})
		c.a.system.Root.Send(c.to, c.transfer(t, arena, i, 1+i*7%5000))
	}
	c.recorder.await(t, 2*messages)
	close(stop)
	<-stopped
	next, came := int64(0), make([]int, messages)
	for _, m := range c.recorder.messages() {
		switch m := m.(type) {
		case *actors.Credit:
			if m.Order != next {
				t.Fatalf("credit %d comes where %d is next", m.Order, next)
			}
			next++
		case *actors.Transfer:
			came[m.Microbatch]++
			for _, v := range tensorops.Elements[float32](m.Tensor) {
				if v != float32(m.Microbatch) {
					t.Fatalf("tensor %d has a %g in it", m.Microbatch, v)
				}
			}
			m.Tensor.Release()
		}
	}
	for i, n := range came {
		if n != 1 {
			t.Errorf("tensor %d came %d times", i, n)
		}
	}
	control, bulk := c.a.mesh.Resent(c.b.id)
	t.Logf("%d control messages and %d tensors were sent again", control, bulk)
}

// TestForeignMessages: messages of another attempt, for other actors, in the wrong direction or from an unknown process have
// no effect.
func TestForeignMessages(t *testing.T) {
	c := newPair(t)
	foreign := make(map[string]*recorder)
	for _, id := range []string{"scheduler", actors.SupervisorID(uuid.New()), c.supervisor + "x/stage 0", c.supervisor + "x"} {
		foreign[id] = c.b.record(t, id)
	}
	stranger := c.network.Listen("stranger", nil, transport.Handlers{})
	defer stranger.Close()
	header := &wire.Header{Run: c.run[:], Attempt: c.id[:], Step: 1, Order: 1}
	credit := func(h *wire.Header) *wire.Message {
		return &wire.Message{Header: h, Kind: &wire.Message_Credit{Credit: &wire.Credit{Edge: uint32(scheduler.BackwardEdge), Chunk: 1}}}
	}
	done := &wire.Message{Header: header, Kind: &wire.Message_StageDone{StageDone: &wire.StageDone{}}}
	other := uuid.New()
	to := c.to.Id
	control := map[string]struct {
		target string
		m      *wire.Message
		log    string
	}{
		"an unknown attempt":       {to, credit(&wire.Header{Run: c.run[:], Attempt: other[:]}), "not attached"},
		"no attempt":               {to, credit(&wire.Header{}), "not attached"},
		"no header":                {to, credit(nil), "not attached"},
		"no message":               {to, nil, "not attached"},
		"another run":              {to, credit(&wire.Header{Run: other[:], Attempt: c.id[:]}), "it belongs to attempt"},
		"no kind":                  {to, &wire.Message{Header: header}, "a stage does not take"},
		"the wrong direction":      {to, done, "a stage does not take"},
		"nobody":                   {c.supervisor + "/nobody", credit(header), "no such actor"},
		"no target":                {"", credit(header), "target"},
		"a tensor without numbers": {to, &wire.Message{Header: header, Kind: &wire.Message_Transfer{Transfer: &wire.Transfer{}}}, "a stage does not take"},
	}
	for id := range foreign {
		control["target "+id] = struct {
			target string
			m      *wire.Message
			log    string
		}{id, credit(header), "target"}
	}
	seen := 0
	// mark sends a message that must come, behind what must not have come.
	mark := func(t *testing.T) {
		t.Helper()
		seen++
		c.a.system.Root.Send(c.to, &actors.Credit{Header: c.header(seen), Kind: scheduler.BackwardEdge, Edge: 1})
		c.recorder.await(t, seen)
		if all := c.recorder.messages(); len(all) != seen || all[seen-1].(*actors.Credit).Order != int64(seen) {
			t.Fatalf("%+v came, %d were to come", all[len(all)-1], seen)
		}
		for id, r := range foreign {
			if n := len(r.messages()); n != 0 {
				t.Fatalf("%d messages came to %q", n, id)
			}
		}
	}
	// logs waits for a text in b's log, where other goroutines write than those of messages.
	logs := func(t *testing.T, from int, text string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !strings.Contains(c.b.logged.String()[from:], text); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %q in the log:\n%s", text, c.b.logged.String()[from:])
			}
		}
	}
	for name, f := range control {
		t.Run(name, func(t *testing.T) {
			from := len(c.b.logged.String())
			if err := c.a.mesh.Post(c.b.id, &wire.Envelope{Target: f.target, Body: &wire.Envelope_Message{Message: f.m}}); err != nil {
				t.Fatal(err)
			}
			mark(t)
			logs(t, from, f.log)
		})
	}
	bulk := func(target string, m *wire.Message) []byte {
		text, err := proto.Marshal(&wire.Envelope{Target: target, Body: &wire.Envelope_Message{Message: m}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	transfer := &wire.Message{Header: header, Kind: &wire.Message_Transfer{Transfer: &wire.Transfer{To: 1, Rank: 1,
		Tensor: &wire.Tensor{Dtype: uint32(tensorops.Float32), Dims: []int64{2}}}}}
	state := &wire.Message{Header: header, Kind: &wire.Message_StageState{StageState: &wire.StageState{}}}
	for name, f := range map[string]struct {
		header []byte
		parts  [][]byte
		log    string
	}{
		"tensor for a foreign target":   {bulk(c.supervisor+"x/stage 0", transfer), [][]byte{make([]byte, 8)}, "not an actor of the attempt"},
		"tensor for the scheduler":      {bulk("scheduler", transfer), [][]byte{make([]byte, 8)}, "not an actor of the attempt"},
		"tensor of another length":      {bulk(to, transfer), [][]byte{make([]byte, 4)}, "message discarded"},
		"tensor of the wrong direction": {bulk(to, state), nil, "message discarded"},
		"message without numbers":       {bulk(to, credit(header)), nil, "message discarded"},
		"no message":                    {[]byte{0xff, 1, 2}, nil, "message discarded"},
	} {
		t.Run(name, func(t *testing.T) {
			from := len(c.b.logged.String())
			ended := make(chan error, 1)
			c.a.mesh.PostBulk(c.id, c.b.id, f.header, f.parts, func(err error) { ended <- err })
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			mark(t)
			_ = from // the lane's log is limited in rate
			logs(t, 0, "message discarded")
		})
	}
	unknown := uuid.New()
	for name, e := range map[string]*wire.Envelope{
		"an unknown incarnation":              {From: unknown[:], Sender: "a"},
		"an unknown incarnation without name": {From: unknown[:]},
		"a forged name":                       {From: c.a.id[:], Sender: boss},
		"no name":                             {From: c.a.id[:]},
		"no incarnation":                      {Sender: "a"},
		"a short incarnation":                 {From: []byte{1}, Sender: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			from := len(c.b.logged.String())
			e.To, e.Seq, e.Ack, e.Target = c.b.id[:], uint64(seen+len(control)+1), 1<<40, to
			e.Body = &wire.Envelope_Message{Message: credit(header)}
			stranger.Send("b", e)
			logs(t, from, "dropped a message")
			mark(t)
		})
	}
}

// TestEarly: messages that arrive before there is a mesh have no effect.
func TestEarly(t *testing.T) {
	c := newPair(t)
	var early mesh.Port
	early.Envelope(transport.Peer{}, &wire.Envelope{From: c.a.id[:], Seq: 1})
	conn, err := c.a.net.Dial(t.Context(), "b", "lane")
	if err != nil {
		t.Fatal(err)
	}
	early.Accept(conn, transport.Peer{})
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a stream is open without a mesh")
	}
}

// TestDetachUnderWay: after Detach returns, neither the sender nor the receiver reads or writes memory of the attempt. The
// race detector checks later writes; the receiver's memory above 256 KiB is unmapped.
func TestDetachUnderWay(t *testing.T) {
	for round := range 8 {
		c := newPair(t)
		r := rand.New(rand.NewPCG(uint64(round), 0))
		memory := tensorops.NewHostMemory(0)
		arena := memory.NewArena("sender")
		var sent []*actors.Transfer
		for i := range 60 {
			sent = append(sent, c.transfer(t, arena, i, []int{10, 3000, 100_000, 500_000}[r.IntN(4)]))
		}
		received := c.recorder
		var all [][]byte
		for _, m := range sent {
			all = append(all, tensorops.Bytes(m.Tensor))
			c.a.system.Root.Send(c.to, m)
		}
		pause := time.Duration(r.IntN(12)) * time.Millisecond
		if round%2 == 0 { // the sender leaves
			time.Sleep(pause) // any moment will do
			c.a.mesh.Detach(c.id)
			for _, b := range all {
				for i := range b {
					b[i] = 0xee
				}
			}
			memory.Close()
		} else { // the receiver does
			time.Sleep(pause)
			c.b.mesh.Detach(c.id)
			for _, m := range received.messages() {
				b := tensorops.Bytes(m.(*actors.Transfer).Tensor)
				copy(b, bytes.Repeat([]byte{0xee}, len(b)))
			}
			c.stagesB.Kill()
			c.stagesB.Wait() // closes the memory that tensors were read into
			c.a.mesh.Detach(c.id)
			memory.Close()
		}
		if round%2 == 0 { // what has come is whole
			for _, m := range received.messages() {
				m := m.(*actors.Transfer)
				for _, v := range tensorops.Elements[float32](m.Tensor) {
					if v != float32(m.Microbatch) {
						t.Fatalf("tensor %d has a %g in it", m.Microbatch, v)
					}
				}
			}
		}
	}
}
