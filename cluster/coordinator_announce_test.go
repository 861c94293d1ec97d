package cluster_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/cluster/discovery"
)

// signposts is a discovery service with coordinators' addresses by name: "post://NAME".
type signposts struct {
	mu        sync.Mutex
	addresses map[string][]string
}

var posts = &signposts{addresses: make(map[string][]string)}

func init() {
	discovery.Register("post", func(u *url.URL) (discovery.Finder, error) { return post{u.Host}, nil })
	discovery.Register("map", func(*url.URL) (discovery.Finder, error) { return roadMap{}, nil })
}

func (s *signposts) set(name string, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses[name] = addresses
}

type post struct{ name string }

func (p post) Find(context.Context) ([]string, error) {
	posts.mu.Lock()
	defer posts.mu.Unlock()
	if all := posts.addresses[p.name]; len(all) > 0 {
		return all, nil
	}
	return nil, discovery.ErrNone
}

func (p post) Announce(ctx context.Context, _, address string) error {
	posts.set(p.name, address)
	<-ctx.Done()
	posts.set(p.name)
	return nil
}

func (post) Close() error { return nil }

// roadMap is a discovery service that finds addresses but can't announce one: "map://".
type roadMap struct{}

func (roadMap) Find(context.Context) ([]string, error) { return nil, discovery.ErrNone }
func (roadMap) Close() error                           { return nil }

// TestCoordinatorMoves: a worker and an operator find a coordinator that restarts at another address, even if another
// cluster's coordinator now has the old address.
func TestCoordinatorMoves(t *testing.T) {
	dir := t.TempDir()
	posts.set("moves")
	before := coordinator(t, "127.0.0.1:0", dir)
	old := before.Address()
	token, err := before.NewToken(cluster.RoleOperator, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	log, stop := works(t, cluster.WorkerConfig{Join: "post://moves", Token: workerToken(t, before), Name: "w"})
	log.eventually(t, "no coordinator found")
	posts.set("moves", "127.0.0.1:1", old)
	log.eventually(t, "coordinator="+old)
	operator, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: "post://moves", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	before.Close()
	_ = coordinator(t, old, "") // of another cluster
	posts.set("moves", old)
	if _, err := operator.Runs(t.Context()); err == nil || !strings.Contains(err.Error(), "another authority") {
		t.Errorf("%v; want that this is another cluster's", err)
	}
	after := coordinator(t, "127.0.0.1:0", dir)
	posts.set("moves", old, after.Address())
	log.eventually(t, "coordinator="+after.Address())
	if err := after.Wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if _, err := operator.Runs(t.Context()); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestAnnounce: a discovery service has a coordinator's address until the coordinator stops.
func TestAnnounce(t *testing.T) {
	if raceDetector {
		t.Skip("two of protoactor's remotes in a process are a race: gRPC's logger is global")
	}
	c, err := cluster.NewCoordinator(cluster.Config{Listen: "127.0.0.1:0", Announce: "post://announced"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	log, stop := works(t, cluster.WorkerConfig{Join: "post://announced", Token: workerToken(t, c), Name: "w"})
	log.eventually(t, "coordinator="+c.Address())
	if err := stop(); err != nil {
		t.Error(err)
	}
	c.Close()
	if found, err := (post{"announced"}).Find(t.Context()); !errors.Is(err, discovery.ErrNone) {
		t.Errorf("%v, %v: it is still announced", found, err)
	}
}

// TestUnknownScheme: everything that takes an address refuses an unknown scheme at once.
func TestUnknownScheme(t *testing.T) {
	err := cluster.Work(t.Context(), cluster.WorkerConfig{Join: "etcd://x:1", Name: "w"})
	if !errors.Is(err, discovery.ErrAddress) {
		t.Error(err)
	}
	if _, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: "etcd://x:1"}); !errors.Is(err, discovery.ErrAddress) {
		t.Error(err)
	}
	for _, announce := range []string{"etcd://x:1", "127.0.0.1:1", "map://x"} {
		c, err := cluster.NewCoordinator(cluster.Config{Listen: "127.0.0.1:0", Announce: announce})
		if !errors.Is(err, discovery.ErrAddress) {
			t.Error(err)
		}
		if err == nil {
			c.Close()
		}
	}
}
