package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// announce announces an address until the returned function is called, which returns Announce's result.
func announce(t *testing.T, a discovery.Announcer, cluster, address string) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Announce(ctx, cluster, address) }() // ends with ctx
	t.Cleanup(cancel)
	return func() error {
		cancel()
		return <-ended
	}
}

// eventually waits until exactly these addresses are found, in any order.
func eventually(t *testing.T, f discovery.Finder, want ...string) {
	t.Helper()
	slices.Sort(want)
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, err := f.Find(t.Context())
		slices.Sort(got)
		if slices.Equal(got, want) && (err == nil || len(want) == 0 && errors.Is(err, discovery.ErrNone)) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("after a minute %v, %v is found; want %v", got, err, want)
		}
	}
}

// TestAnnounce: an address is found while it is announced. A later announcement for the same cluster replaces it.
func TestAnnounce(t *testing.T) {
	s := newServer(t, nil)
	coordinator, again, other, finder := s.open("/a"), s.open("/a"), s.open("/b"), s.open("/a")
	eventually(t, finder)
	first := announce(t, coordinator, "c1", "10.0.0.1:7070")
	eventually(t, finder, "10.0.0.1:7070")
	elsewhere := announce(t, other, "c1", "10.9.9.9:7070")
	eventually(t, other, "10.9.9.9:7070")
	eventually(t, finder, "10.0.0.1:7070")

	second := announce(t, again, "c1", "10.0.0.2:7070")
	eventually(t, finder, "10.0.0.2:7070")
	if err := first(); err != nil {
		t.Error(err)
	}
	eventually(t, s.open("/a"), "10.0.0.2:7070") // the first one's end has not removed it

	third := announce(t, coordinator, "c2", "10.0.0.3:7070")
	eventually(t, finder, "10.0.0.2:7070", "10.0.0.3:7070")
	for _, end := range []func() error{second, third, elsewhere} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, finder)
	eventually(t, other)
}

// TestRemoved: a key that was removed is stored again.
func TestRemoved(t *testing.T) {
	s := newServer(t, nil)
	finder := s.open("")
	end := announce(t, s.open(""), "c", "10.0.0.1:7070")
	eventually(t, finder, "10.0.0.1:7070")
	admin := v3client.New(s.running.Server)
	defer admin.Close() //nolint:errcheck // of a server in this process
	if r, err := admin.Delete(t.Context(), "/troupe/coordinators/c"); err != nil || r.Deleted != 1 {
		t.Fatal(r, err)
	}
	eventually(t, s.open(""), "10.0.0.1:7070")
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestStopped: while etcd is down, Find returns the last known addresses; when it is back, the current ones.
func TestStopped(t *testing.T) {
	s := newServer(t, nil)
	finder, coordinator := s.open(""), s.open("")
	end := announce(t, coordinator, "c", "10.0.0.1:7070")
	eventually(t, finder, "10.0.0.1:7070")
	s.stop()
	for range 3 {
		if got, err := finder.Find(t.Context()); err != nil || !slices.Equal(got, []string{"10.0.0.1:7070"}) {
			t.Errorf("without etcd %v, %v is found", got, err)
		}
	}
	if err := end(); err != nil { // it can't be removed now: the lease does that
		t.Error(err)
	}
	if _, err := s.open("").Find(t.Context()); err == nil || errors.Is(err, discovery.ErrNone) {
		t.Errorf("%v; want that etcd can't be asked", err)
	}
	s.start()
	announce(t, coordinator, "c", "10.0.0.2:7070")
	eventually(t, finder, "10.0.0.2:7070")
}

// TestLeaseEnds: if etcd loses its data, Announce returns an error and may be called again.
func TestLeaseEnds(t *testing.T) {
	s := newServer(t, nil)
	ended := make(chan error, 1)
	a := s.open("")
	go func() { ended <- a.Announce(t.Context(), "c", "10.0.0.1:7070") }() // ends with the lease
	eventually(t, s.open(""), "10.0.0.1:7070")
	admin := v3client.New(s.running.Server)
	defer admin.Close() //nolint:errcheck // of a server in this process
	leases, err := admin.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatal(leases, err)
	}
	if _, err := admin.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("Announce says nothing of it")
	}
	announce(t, a, "c", "10.0.0.1:7070")
	eventually(t, s.open(""), "10.0.0.1:7070")
}

// TestTLS: a connection needs etcd's authority and a certificate from it.
func TestTLS(t *testing.T) {
	f, others := newFiles(t), newFiles(t)
	s := newServer(t, f)
	with := fmt.Sprintf("/p?ca=%s&cert=%s&key=%s", f.ca, f.cert, f.key)
	announce(t, s.open(with), "c", "10.0.0.1:7070")
	eventually(t, s.open(with), "10.0.0.1:7070")
	var asking sync.WaitGroup
	defer asking.Wait()
	for name, without := range map[string]string{
		"no TLS": "/p", "no certificate": "/p?ca=" + f.ca, "another authority": fmt.Sprintf("/p?ca=%s&cert=%s&key=%s", others.ca, f.cert, f.key),
		"another's certificate": fmt.Sprintf("/p?ca=%s&cert=%s&key=%s", f.ca, others.cert, others.key),
	} {
		finder := s.open(without)
		asking.Add(1)
		go func() { // ends with the answer
			defer asking.Done()
			if got, err := finder.Find(t.Context()); err == nil || errors.Is(err, discovery.ErrNone) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}()
	}
}
