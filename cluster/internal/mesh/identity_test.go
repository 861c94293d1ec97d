package mesh_test

import (
	"context"
	"net"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
)

// TestClaimedIncarnation: a process can't send tensors or messages as another process, known or unknown, even if it names
// that process's incarnation.
func TestClaimedIncarnation(t *testing.T) {
	c := newPair(t)
	for _, name := range []string{"a", "b", "thief"} {
		c.network.SetPeer(name, transport.Peer{Name: name})
	}
	thief := c.network.Listen("thief", nil, transport.Handlers{})
	defer thief.Close()
	for _, f := range []struct {
		id   mesh.ID
		want string
	}{{c.a.id, `has the name "a", but its certificate has the name "thief"`}, {uuid.New(), "unknown process"}} {
		node := lane.New(lane.Config{Self: lane.ID(f.id), Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return thief.Dial(ctx, address, mesh.LaneProtocol)
		}})
		group := node.Open(lane.ID(c.id), nil)
		node.SetPeer(lane.ID(c.b.id), "b")
		ended := make(chan error, 1)
		group.Send(lane.ID(c.b.id), []byte("header"), [][]byte{make([]byte, 8)}, func(err error) { ended <- err })
		c.b.awaitLog(t, "refused a stream")
		c.b.awaitLog(t, f.want)
		group.Close()
		node.Close()
		if err := <-ended; err == nil {
			t.Error("what it sent was taken")
		}
		credit := &wire.Message{Header: &wire.Header{Run: c.run[:], Attempt: c.id[:], Step: 1},
			Kind: &wire.Message_Credit{Credit: &wire.Credit{Edge: uint32(scheduler.BackwardEdge), Chunk: 1}}}
		thief.Send("b", &wire.Envelope{From: f.id[:], To: c.b.id[:], Sender: "a", Seq: 1, Target: c.to.Id,
			Body: &wire.Envelope_Message{Message: credit}})
		c.b.awaitLog(t, "dropped a message")
	}
	c.a.system.Root.Send(c.to, &actors.Credit{Header: c.header(7), Kind: scheduler.BackwardEdge, Edge: 1})
	c.recorder.await(t, 1)
	if all := c.recorder.messages(); len(all) != 1 || all[0].(*actors.Credit).Order != 7 {
		t.Errorf("%+v came, want what a sent alone", all)
	}
}
