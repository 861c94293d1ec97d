// Package members keeps the list of a cluster's workers in protoactor's membership: a
// provider of its own tells protoactor's member list who is there, and whoever cares hears
// of changes as protoactor's topology. What protoactor's cluster has beside that (gossip,
// identities, virtual actors, a failure detector of its own) is not started: beats say who
// is alive, and nobody else.
//
// It knows names, incarnations and addresses, and neither beats nor runs.
package members

import (
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/eventstream"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/google/uuid"
)

// kind is what a member of the list can run.
const kind = "troupe-worker"

// Change is what a new topology brought.
type Change struct{ Joined, Left []uuid.UUID }

// List is the list of members.
type List struct {
	cluster  *cluster.Cluster
	provider *provider
	events   *eventstream.Subscription
}

// New begins a list in an actor system. changed is told of every change, in order; it must not
// change the list.
func New(system *actor.ActorSystem, changed func(Change)) (*List, error) {
	l := &List{provider: &provider{}}
	l.cluster = cluster.New(system, cluster.Configure("troupe", l.provider, nobody{}, nil))
	l.cluster.Remote = blocked()
	l.events = system.EventStream.Subscribe(func(e any) {
		if t, ok := e.(*cluster.ClusterTopology); ok {
			changed(Change{ids(t.Joined), ids(t.Left)})
		}
	})
	return l, l.provider.StartMember(l.cluster)
}

// blocked is a remote that never starts, for the list of those who have left: the remote that the
// system has would read it without a lock for each connection, and ours are no actor systems' ids.
func blocked() *remote.Remote {
	nowhere := &actor.ActorSystem{Config: &actor.Config{}, Extensions: extensions.NewExtensions()}
	return remote.NewRemote(nowhere, remote.Configure("", 0))
}

// Add puts a worker on the list. An incarnation that was removed never comes back.
func (l *List) Add(id uuid.UUID, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("a member's address: %w", err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return fmt.Errorf("a member's address %q: %w", address, err)
	}
	l.provider.change(func(all []*cluster.Member) []*cluster.Member {
		return append(all, &cluster.Member{Host: host, Port: int32(n), Id: id.String(), Kinds: []string{kind}})
	})
	return nil
}

// Remove takes a worker off the list.
func (l *List) Remove(id uuid.UUID) {
	l.provider.change(func(all []*cluster.Member) []*cluster.Member {
		var left []*cluster.Member
		for _, m := range all {
			if m.Id != id.String() {
				left = append(left, m)
			}
		}
		return left
	})
}

// Close ends the list.
func (l *List) Close() {
	l.cluster.ActorSystem.EventStream.Unsubscribe(l.events)
	_ = l.provider.Shutdown(true) // which never fails
}

func ids(all []*cluster.Member) []uuid.UUID {
	var found []uuid.UUID
	for _, m := range all {
		if id, err := uuid.Parse(m.Id); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// provider is protoactor's way to hear who is a member: here the list that it is given.
type provider struct {
	mu      sync.Mutex
	cluster *cluster.Cluster // nil: not started, or shut down
	members []*cluster.Member
}

var _ cluster.ClusterProvider = (*provider)(nil)

// StartMember is protoactor's.
func (p *provider) StartMember(c *cluster.Cluster) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster = c
	return nil
}

// StartClient is protoactor's.
func (p *provider) StartClient(c *cluster.Cluster) error { return p.StartMember(c) }

// Shutdown is protoactor's.
func (p *provider) Shutdown(bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster = nil
	return nil
}

// change replaces the list. mu is held throughout, so that topologies come in order.
func (p *provider) change(f func([]*cluster.Member) []*cluster.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cluster == nil {
		return
	}
	p.members = f(p.members)
	p.cluster.MemberList.UpdateClusterTopology(p.members)
}

// nobody looks up no virtual actors: stages are placed, not found.
type nobody struct{}

func (nobody) Get(*cluster.ClusterIdentity) *actor.PID        { return nil }
func (nobody) RemovePid(*cluster.ClusterIdentity, *actor.PID) {}
func (nobody) Setup(*cluster.Cluster, []string, bool)         {}
func (nobody) Shutdown()                                      {}
