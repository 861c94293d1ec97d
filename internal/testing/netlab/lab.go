package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// Variable is the name of the environment variable that must be 1 for New to make a lab.
const Variable = "TROUPE_NETLAB"

// ErrUnavailable is wrapped by Available's error.
var ErrUnavailable = errors.New("test networks can't be made here")

// Available says why test networks can't be made here; nil: they can. It tries only once.
var Available = sync.OnceValue(func() error {
	n, err := newNode(0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	n.close()
	return nil
})

// Link is the cable between a host and the switch, equal in both directions. The zero Link has no
// delay, no loss and no rate limit.
type Link struct {
	// Delay is how long a packet takes through the link, in each direction.
	Delay time.Duration
	// LossPercent is the percentage of packets that are lost, in each direction.
	LossPercent float64
	// BitsPerSecond is the rate of each direction, in bits of IP packets; 0: no limit.
	BitsPerSecond int64
}

func (l Link) check() error {
	switch {
	case l.Delay < 0 || l.Delay > time.Minute:
		return fmt.Errorf("the link's delay is %v; want 0 to 1m", l.Delay)
	case !(l.LossPercent >= 0 && l.LossPercent <= 100):
		return fmt.Errorf("the link's loss is %v percent; want 0 to 100", l.LossPercent)
	case l.BitsPerSecond != 0 && (l.BitsPerSecond < 1000 || l.BitsPerSecond > 1e12):
		return fmt.Errorf("the link's rate is %d bits per second; want 1000 to 1e12, or 0 for no limit", l.BitsPerSecond)
	}
	return nil
}

// Counts counts the packets of a host since the start of the lab.
type Counts struct {
	Sent       int64 // by the host to other hosts
	Received   int64 // by the host
	Lost       int64 // on the host's link, because of its LossPercent
	Overflowed int64 // on the host's link, because too many packets waited
	Cut        int64 // sent by the host and dropped by a partition
	Refused    int64 // arrived while the host's device was down
}

// Lab is a network of hosts. Its methods may be called concurrently. Methods without an error result
// end the test if no host has the name, so call them from the test's goroutine.
type Lab struct {
	t     testing.TB
	hosts []string
	nodes []*node
	start time.Time

	mu      sync.Mutex
	fabric  *fabric
	forward *forwarder
	closed  bool
}

// New makes a lab with a host for each name. It skips the test unless TROUPE_NETLAB=1 is set and
// networks can be made here. The lab ends with the test, and kills processes that still run in its
// hosts.
func New(t testing.TB, hosts ...string) *Lab {
	t.Helper()
	if os.Getenv(Variable) != "1" {
		t.Skipf("the test needs a separate network: run it with %s=1 as root (make check-net)", Variable)
	}
	if err := Available(); err != nil {
		t.Skip(err)
	}
	l, err := open(t, hosts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func open(t testing.TB, hosts []string) (*Lab, error) {
	if len(hosts) == 0 || len(hosts) > LimitHosts {
		return nil, fmt.Errorf("netlab: want 1 to %d hosts, not %d", LimitHosts, len(hosts))
	}
	l := &Lab{t: t, hosts: slices.Clone(hosts), start: time.Now(), fabric: newFabric(len(hosts))}
	for i, host := range hosts {
		if host == "" || slices.Index(hosts, host) != i {
			l.closeNodes()
			return nil, fmt.Errorf("netlab: host %d has the name %q; names must not be empty and must differ", i, host)
		}
		n, err := newNode(i)
		if err != nil {
			l.closeNodes()
			return nil, fmt.Errorf("netlab: host %s: %w", host, err)
		}
		l.nodes = append(l.nodes, n)
	}
	var err error
	if l.forward, err = startForwarder(l); err != nil {
		l.closeNodes()
		return nil, fmt.Errorf("netlab: %w", err)
	}
	return l, nil
}

func (l *Lab) close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	var errs []error
	for i, n := range l.nodes {
		killed, err := n.killAll()
		if err != nil {
			errs = append(errs, fmt.Errorf("netlab: host %s: %w", l.hosts[i], err))
		}
		if killed > 0 {
			l.t.Logf("netlab: killed %d processes that still ran in host %s", killed, l.hosts[i])
		}
	}
	errs = append(errs, l.forward.stop())
	l.closeNodes()
	return errors.Join(errs...)
}

func (l *Lab) closeNodes() {
	for _, n := range l.nodes {
		n.close()
	}
}

// Hosts returns the names of the hosts.
func (l *Lab) Hosts() []string { return slices.Clone(l.hosts) }

// Address returns the host's IPv4 address.
func (l *Lab) Address(host string) string {
	l.t.Helper()
	return address(l.index(host))
}

// Path returns a file that represents the host's namespace while the lab exists, for nsenter --net=PATH.
func (l *Lab) Path(host string) string {
	l.t.Helper()
	return l.nodes[l.index(host)].path()
}

// Command is like exec.CommandContext, but the program runs in the host. The command's process becomes
// the program. It is killed when the test's process exits; keep Pdeathsig if you set SysProcAttr.
func (l *Lab) Command(ctx context.Context, host, name string, args ...string) *exec.Cmd {
	l.t.Helper()
	return enterCommand(ctx, l.nodes[l.index(host)].path(), name, args)
}

// Do calls f on a thread in the host. Sockets that f opens itself, rather than in a goroutine that it
// starts, belong to the host while they are open.
func (l *Lab) Do(host string, f func() error) error {
	i := slices.Index(l.hosts, host)
	if i < 0 {
		return fmt.Errorf("netlab: no host %q: there are %q", host, l.hosts)
	}
	return l.nodes[i].do(f)
}

// Dial connects from the host to a numeric address (names can't be looked up).
func (l *Lab) Dial(ctx context.Context, host, network, address string) (conn net.Conn, err error) {
	err = l.Do(host, func() error {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens in the host. The address is one of the host, or ":PORT".
func (l *Lab) Listen(host, network, address string) (listener net.Listener, err error) {
	err = l.Do(host, func() error {
		listener, err = net.Listen(network, address)
		return err
	})
	return listener, err
}

// ListenPacket is Listen for datagrams.
func (l *Lab) ListenPacket(host, network, address string) (conn net.PacketConn, err error) {
	err = l.Do(host, func() error {
		conn, err = net.ListenPacket(network, address)
		return err
	})
	return conn, err
}

// SetLink changes the host's link. Packets in the old link pass the whole new one.
func (l *Lab) SetLink(host string, link Link) {
	l.t.Helper()
	i := l.index(host)
	if err := link.check(); err != nil {
		l.t.Fatalf("netlab: host %s: %v", host, err)
	}
	l.change(func() { l.fabric.setLink(l.now(), i, link) })
}

// SetLinks changes the links of all hosts.
func (l *Lab) SetLinks(link Link) {
	l.t.Helper()
	for _, host := range l.hosts {
		l.SetLink(host, link)
	}
}

// Partition lets only hosts of the same group reach each other. It replaces an earlier partition.
// Hosts in no group form one more group. Packets between groups are dropped silently, including those
// in transit.
func (l *Lab) Partition(groups ...[]string) {
	l.t.Helper()
	group := make([]int, len(l.hosts))
	for g, hosts := range groups {
		for _, host := range hosts {
			i := l.index(host)
			if group[i] != 0 {
				l.t.Fatalf("netlab: host %s is in groups %d and %d; a host can be in one", host, group[i]-1, g)
			}
			group[i] = g + 1
		}
	}
	l.change(func() {
		for from := range group {
			for to := range group {
				l.fabric.cut[from][to] = group[from] != group[to]
			}
		}
	})
}

// Cut drops packets from one host to another, in this direction only. It adds to other cuts and to
// Partition.
func (l *Lab) Cut(from, to string) {
	l.t.Helper()
	i, j := l.index(from), l.index(to)
	l.change(func() { l.fabric.cut[i][j] = true })
}

// Heal ends all partitions and cuts. It does not change links.
func (l *Lab) Heal() {
	l.t.Helper()
	l.Partition()
}

// LinkDown sets the host's device down: unlike in a partition, programs there get the error that the
// network is unreachable.
func (l *Lab) LinkDown(host string) {
	l.t.Helper()
	l.setUp(host, false)
}

// LinkUp sets the host's device up again.
func (l *Lab) LinkUp(host string) {
	l.t.Helper()
	l.setUp(host, true)
}

func (l *Lab) setUp(host string, up bool) {
	l.t.Helper()
	if err := l.nodes[l.index(host)].setUp(up); err != nil {
		l.t.Fatalf("netlab: host %s: %v", host, err)
	}
}

// Counts returns the counts of the host's packets so far.
func (l *Lab) Counts(host string) Counts {
	l.t.Helper()
	i := l.index(host)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fabric.ports[i].counts
}

// change changes the fabric. The change is in effect when it returns.
func (l *Lab) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	f()
	l.forward.wake()
}

func (l *Lab) now() time.Duration { return time.Since(l.start) }

func (l *Lab) index(host string) int {
	l.t.Helper()
	i := slices.Index(l.hosts, host)
	if i < 0 {
		l.t.Fatalf("netlab: no host %q: there are %q", host, l.hosts)
	}
	return i
}
