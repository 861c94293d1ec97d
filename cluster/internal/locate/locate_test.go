package locate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/cluster/discovery"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// fakeFinder finds given addresses.
type fakeFinder struct {
	mu    sync.Mutex
	found []string
	err   error
	hangs bool
}

func (f *fakeFinder) Find(ctx context.Context) ([]string, error) {
	f.mu.Lock()
	found, err, hangs := f.found, f.err, f.hangs
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return found, err
}

func (*fakeFinder) Close() error { return nil }

// theFake is the Finder of the scheme fake.
var theFake = new(fakeFinder)

func init() {
	discovery.Register("fake", func(*url.URL) (discovery.Finder, error) { return theFake, nil })
}

// places has addresses with the result of trying each; nil: the coordinator is there.
type places map[string]error

var errHangs = errors.New("hangs")

func (p places) open(ctx context.Context, address string) (net.Conn, error) {
	err, known := p[address]
	switch {
	case !known:
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case errors.Is(err, errHangs):
		<-ctx.Done()
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	conn, _ := net.Pipe()
	return conn, nil
}

func TestLocator(t *testing.T) {
	no := fmt.Errorf("%w: not this cluster's", transport.ErrRefused)
	timeout := errors.New("etcd is down")
	many := make([]string, 3*discovery.LimitFound)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.0.%d:1", i)
	}
	for _, c := range []struct {
		name   string
		last   string
		found  []string
		err    error
		hangs  bool
		places places
		want   string // where it is found; "": nowhere
		absent bool   // then: looking again may help
		says   string
	}{
		{name: "the first", found: []string{"a:1", "b:1"}, places: places{"a:1": nil}, want: "a:1"},
		{name: "others are skipped", found: []string{"a:1", "b:1", "c:1"}, places: places{"a:1": no, "c:1": nil}, want: "c:1"},
		{name: "one that does not answer", found: []string{"a:1", "b:1"}, places: places{"a:1": errHangs, "b:1": nil}, want: "b:1"},
		{name: "the last time's, while nothing answers", last: "z:1", hangs: true, places: places{"z:1": nil}, want: "z:1"},
		{name: "the last time's, without a service", last: "z:1", err: timeout, places: places{"z:1": nil}, want: "z:1"},
		{name: "it has moved", last: "z:1", found: []string{"z:1", "a:1"}, places: places{"a:1": nil}, want: "a:1"},
		{name: "it has moved, and its host is gone", last: "z:1", found: []string{"a:1"}, places: places{"z:1": errHangs, "a:1": nil},
			want: "a:1"},
		{name: "another has its place", last: "z:1", found: []string{"a:1"}, places: places{"z:1": no, "a:1": nil}, want: "a:1"},
		{name: "nothing is found", absent: true, says: "no coordinator found"},
		{name: "no service", err: timeout, absent: true, says: "etcd is down"},
		{name: "nobody is there", found: []string{"a:1"}, absent: true, says: "connection refused"},
		{name: "one is not there, one refuses", found: []string{"a:1", "b:1"}, places: places{"a:1": no}, absent: true,
			says: "not this cluster's; dial"},
		{name: "all refuse", found: []string{"a:1", "b:1"}, places: places{"a:1": no, "b:1": no}, says: "not this cluster's"},
		{name: "too many", found: many, places: places{many[discovery.LimitFound]: nil}, absent: true, says: "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &Locator{text: "fake://x", finder: &fakeFinder{found: c.found, err: c.err, hangs: c.hangs}, last: c.last}
			conn, err := l.Dial(t.Context(), c.places.open)
			if c.want != "" {
				if err != nil || l.latest() != c.want {
					t.Fatalf("found at %q, %v; want %q", l.latest(), err, c.want)
				}
				_ = conn.Close()
				return
			}
			if err == nil || Absent(err) != c.absent || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: looking again may help: %v; want %v, and %q", err, Absent(err), c.absent, c.says)
			}
			if l.latest() != c.last {
				t.Errorf("it remembers %q", l.latest())
			}
		})
	}
}

// TestLocatorEnds: a search ends with its context, whatever blocks, and leaves nothing open.
func TestLocatorEnds(t *testing.T) {
	for _, f := range []*fakeFinder{{hangs: true}, {found: []string{"a:1", "b:1", "c:1"}}} {
		l := &Locator{text: "fake://x", finder: f, last: "z:1"}
		ctx, cancel := context.WithCancel(t.Context())
		p := places{"a:1": errHangs, "b:1": errHangs, "c:1": errHangs, "z:1": errHangs}
		_, err := l.Dial(ctx, func(ctx context.Context, address string) (net.Conn, error) {
			cancel()
			return p.open(ctx, address)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want %v", err, context.Canceled)
		}
	}
}

// TestLocatorFixed: an address without a scheme is used as it is, and its errors are unchanged.
func TestLocatorFixed(t *testing.T) {
	l, err := New("head:7070")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := errors.New("as it is")
	var tried []string
	_, err = l.Dial(t.Context(), func(_ context.Context, address string) (net.Conn, error) {
		tried = append(tried, address)
		return nil, want
	})
	if err != want || !slices.Equal(tried, []string{"head:7070"}) { //nolint:errorlint // this very error
		t.Errorf("%v by %v", err, tried)
	}
	if _, err := New("none://x"); !errors.Is(err, discovery.ErrAddress) {
		t.Errorf("%v; want %v", err, discovery.ErrAddress)
	}
}
