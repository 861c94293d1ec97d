package mesh_test

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// awaitLog waits for a text in a process's log.
func (p *process) awaitLog(t testing.TB, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(p.logged.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in the log:\n%s", text, p.logged)
		}
	}
}

// TestNewIncarnation: a process with a new incarnation, at the same address and in the same actor system, receives nothing
// that was for the previous one, and messages from the previous one are dropped. An attempt's messages go only to the process
// that took part in the attempt, not to another one that now has its address.
func TestNewIncarnation(t *testing.T) {
	c := newPair(t)
	root := c.a.system.Root
	root.Send(c.to, &actors.Credit{Header: c.header(1), Kind: scheduler.BackwardEdge, Edge: 1})
	c.recorder.await(t, 1)

	old, oldID := c.b.mesh, c.b.id
	c.stagesB.Kill()
	c.stagesB.Wait()
	c.b.port.Use(nil)
	old.Close()
	root.Send(c.to, &actors.Credit{Header: c.header(2), Kind: scheduler.BackwardEdge, Edge: 1}) // which nobody takes
	arena := tensorops.NewHostMemory(0).NewArena("sender")
	root.Send(c.to, c.transfer(t, arena, 3, 100))
	c.b.begin()
	fresh := c.b.peer()
	if err := c.b.mesh.SetPeer(c.a.peer()); err != nil {
		t.Fatal(err)
	}

	// a still sends to the one before: control by the link, which sends it again, and a tensor by
	// the lane, which dials again.
	if err := c.a.mesh.Control(oldID, &wire.Control{Request: 4}); err != nil {
		t.Fatal(err)
	}
	c.b.awaitLog(t, "is for process "+strings.ReplaceAll(oldID.String(), "-", ""))
	c.b.awaitLog(t, "another process answers at this address")

	// From now on a knows the new one, and no longer the one before.
	if err := c.a.mesh.SetPeer(fresh); err != nil {
		t.Fatal(err)
	}
	c.a.mesh.Forget(oldID)
	root.Send(c.to, &actors.Credit{Header: c.header(5), Kind: scheduler.BackwardEdge, Edge: 1}) // to the one before
	c.a.awaitLog(t, "can't send a message")
	credit := &wire.Message{Header: &wire.Header{Run: c.run[:], Attempt: c.id[:]}, Kind: &wire.Message_Credit{Credit: &wire.Credit{}}}
	// of an attempt that the new one never had
	if err := c.a.mesh.Post(c.b.id, &wire.Envelope{Target: c.to.Id, Body: &wire.Envelope_Message{Message: credit}}); err != nil {
		t.Fatal(err)
	}
	if err := c.a.mesh.Control(c.b.id, &wire.Control{Request: 6}); err != nil {
		t.Fatal(err)
	}
	if got := <-c.b.orders; got != 6 {
		t.Errorf("request %d came, want 6", got)
	}
	c.b.awaitLog(t, "the attempt is not attached")

	// Something of the one before is still under way.
	stranger := c.network.Listen("stranger", nil, transport.Handlers{})
	defer stranger.Close()
	stranger.Send("a", &wire.Envelope{From: oldID[:], To: c.a.id[:], Sender: c.b.name, Seq: 1,
		Body: &wire.Envelope_Control{Control: &wire.Control{Request: 7}}})
	c.a.awaitLog(t, "dropped a message")
	if err := c.b.mesh.Control(c.a.id, &wire.Control{Request: 8}); err != nil {
		t.Fatal(err)
	}
	if got := <-c.a.orders; got != 8 {
		t.Errorf("request %d came, want 8", got)
	}
	if n := len(c.recorder.messages()); n != 1 {
		t.Errorf("%d messages came to an actor of an attempt, want the one before the end", n)
	}
}
