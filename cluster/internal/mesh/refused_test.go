package mesh_test

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestStranger: a member outside an attempt can't send messages to its actors, under its own or another name, and receives
// nothing of the attempt, whatever address it claims. Its messages are counted, and don't fill the log.
func TestStranger(t *testing.T) {
	c := newPair(t)
	all := join(t, c.network, "stranger")
	s := all[0]
	known := func(at *wire.Peer) {
		t.Helper()
		for _, p := range []*process{c.a, c.b} {
			if err := p.mesh.SetPeer(at); err != nil {
				t.Fatal(err)
			}
			if err := s.mesh.SetPeer(p.peer()); err != nil {
				t.Fatal(err)
			}
		}
	}
	known(s.peer()) // a link needs answers, so that it can send under a true address alone
	header := &wire.Header{Run: c.run[:], Attempt: c.id[:], Step: 1, Order: 1}
	const flood = 500
	for _, m := range []*wire.Message{
		{Header: header, Kind: &wire.Message_Credit{Credit: &wire.Credit{Edge: uint32(scheduler.BackwardEdge), Chunk: 1}}},
		{Header: header, Kind: &wire.Message_Halt{Halt: &wire.Halt{}}},
		{Header: header, Kind: &wire.Message_Apply{Apply: &wire.Apply{Skip: true}}},
	} {
		for range flood {
			if err := s.mesh.Post(c.b.id, &wire.Envelope{Target: c.to.Id, Body: &wire.Envelope_Message{Message: m}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for end := time.Now().Add(time.Minute); c.b.mesh.Refused() < 3*flood; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d messages were refused", c.b.mesh.Refused(), 3*flood)
		}
	}
	if n := strings.Count(c.b.logged.String(), "refused a message"); n == 0 || n > 120 {
		t.Errorf("%d lines about %d messages; want at most 10 a second", n, 3*flood)
	}
	c.b.awaitLog(t, "is not in the attempt")

	hijack := s.peer()
	hijack.Address = c.b.name // as a worker may say
	hijack.DataAddress = s.name
	known(hijack)

	// A message of the other worker still comes, and goes to b, whose address the stranger claims.
	arena := tensorops.NewHostMemory(0).NewArena("sender")
	c.a.system.Root.Send(c.to, c.transfer(t, arena, 1, 10))
	c.a.system.Root.Send(c.to, &actors.Credit{Header: c.header(1), Kind: scheduler.BackwardEdge, Edge: 1})
	c.recorder.await(t, 2)
	for _, p := range []*process{c.a, c.b} {
		p.mesh.Forget(s.id)
	}
}
