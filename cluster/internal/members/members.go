// Package members keeps the list of a cluster's workers in protoactor's member list: its cluster
// provider sets the list, and subscribers get changes as protoactor's topology events. The rest of
// protoactor's cluster (gossip, identities, virtual actors, its failure detector) is not started:
// only beats decide which workers are alive.
//
// The package knows incarnations and addresses, but neither beats nor runs.
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

// kind is the actor kind of every member, which protoactor requires.
const kind = "troupe-worker"

// Change has the members that joined and left with a new topology.
type Change struct{ Joined, Left []uuid.UUID }

// List is the list of members.
type List struct {
	cluster  *cluster.Cluster
	provider *provider
	events   *eventstream.Subscription
}

// New makes a list in an actor system. changed is called with every change, in order; it must not change
// the list.
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

// blocked returns a remote that is never started, to hold protoactor's list of left members. The
// system's own remote would read that list without a lock at each connection, and the ids in ours are
// not those of actor systems.
func blocked() *remote.Remote {
	nowhere := &actor.ActorSystem{Config: &actor.Config{}, Extensions: extensions.NewExtensions()}
	return remote.NewRemote(nowhere, remote.Configure("", 0))
}

// Add adds a worker to the list. A removed incarnation can't be added again.
func (l *List) Add(id uuid.UUID, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("split the address of a member: %w", err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return fmt.Errorf("parse the port of the member's address %q: %w", address, err)
	}
	l.provider.change(func(all []*cluster.Member) []*cluster.Member {
		return append(all, &cluster.Member{Host: host, Port: int32(n), Id: id.String(), Kinds: []string{kind}})
	})
	return nil
}

// Remove removes a worker from the list.
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
	_ = l.provider.Shutdown(true) // it never fails
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

// provider implements protoactor's source of members: here, the list itself.
type provider struct {
	mu      sync.Mutex
	cluster *cluster.Cluster // nil: not started, or shut down
	members []*cluster.Member
}

var _ cluster.ClusterProvider = (*provider)(nil)

// StartMember implements cluster.ClusterProvider.
func (p *provider) StartMember(c *cluster.Cluster) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster = c
	return nil
}

// StartClient implements cluster.ClusterProvider.
func (p *provider) StartClient(c *cluster.Cluster) error { return p.StartMember(c) }

// Shutdown implements cluster.ClusterProvider.
func (p *provider) Shutdown(bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster = nil
	return nil
}

// change replaces the list. It holds mu throughout, so that topologies come in order.
func (p *provider) change(f func([]*cluster.Member) []*cluster.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cluster == nil {
		return
	}
	p.members = f(p.members)
	p.cluster.MemberList.UpdateClusterTopology(p.members)
}

// nobody implements protoactor's lookup of virtual actors and finds none: Troupe places its stages.
type nobody struct{}

func (nobody) Get(*cluster.ClusterIdentity) *actor.PID        { return nil }
func (nobody) RemovePid(*cluster.ClusterIdentity, *actor.PID) {}
func (nobody) Setup(*cluster.Cluster, []string, bool)         {}
func (nobody) Shutdown()                                      {}
