package cluster

import (
	"net"
	"runtime"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// What carries messages takes of the processors that compute where there are no others: those that a process may
// use, however many of the runtime's run on them. A worker has one of these more than it computes with.
func TestCarryNS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	network := transport.NewMemory()
	streams := transport.Handlers{Streams: map[string]func(net.Conn, transport.Peer){probeProtocol: serveProbe}}
	from, to := network.Listen("a", nil, transport.Handlers{}), network.Listen("b", nil, streams)
	defer from.Close()
	defer to.Close()
	l := measureLink(t.Context(), from, &wire.Peer{Name: "b", Address: "b"})
	if l.GetError() != "" || l.GetProcessors() != int32(runtime.NumCPU()) || !(l.GetBytesPerS() > 0) || !(l.GetSendNs() > 0) || !(l.GetReceiveNs() > 0) {
		t.Fatalf("the link is %v, of %d processors", l, runtime.NumCPU())
	}
	worker := func(name string, cores int) *share {
		m := beat.Member{}
		m.Name, m.Address, m.ID, m.Offer = name, name+":1", uuid.New(), &wire.Offer{Cores: int32(cores)}
		return &share{Member: m, ranks: []int{0}}
	}
	for _, c := range []struct {
		cores, others, processors int
		want                      float64
	}{
		{1, 1, 1, 3}, // 2 to send and 4 to receive, of the only one
		{1, 1, 2, 0}, // another one is left
		{2, 2, 2, 1.5},
		{1, 1, 0, 3},
	} {
		a := &attempt{}
		one, other := worker("one", c.cores), worker("other", c.others)
		a.shares = []*share{one, other}
		way := func() *wire.Link {
			return &wire.Link{SendNs: 2, ReceiveNs: 4, Processors: int32(c.processors)}
		}
		got := a.carryNS(one, map[[2]string]*wire.Link{{"one", "other"}: way(), {"other", "one"}: way()})
		if got != c.want {
			t.Errorf("%+v: a byte takes %g ns", c, got)
		}
	}
}
