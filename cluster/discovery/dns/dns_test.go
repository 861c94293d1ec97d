package dns_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/troupe-ml/troupe/cluster/discovery"
	"github.com/troupe-ml/troupe/cluster/discovery/dns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a name server on loopback.
type server struct {
	conn net.PacketConn
	done chan struct{}

	mu       sync.Mutex
	hosts    map[string][]string // name with its last dot → addresses
	services map[string][]dnsmessage.SRVResource
}

func newServer(t *testing.T) *server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{conn: conn, done: make(chan struct{}), hosts: make(map[string][]string), services: make(map[string][]dnsmessage.SRVResource)}
	go func() { // ends with conn
		defer close(s.done)
		s.serve()
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-s.done
	})
	return s
}

// resolver asks only this server.
func (s *server) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *server) host(name string, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[name] = addresses
}

func (s *server) service(name string, records ...dnsmessage.SRVResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[name] = records
}

func (s *server) serve() {
	packet := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(packet)
		if err != nil {
			return
		}
		if answer, err := s.answer(packet[:n]); err == nil {
			_, _ = s.conn.WriteTo(answer, from)
		}
	}
}

func (s *server) answer(packet []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("not one question"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	addresses, isHost := s.hosts[q.Name.String()]
	records, isService := s.services[q.Name.String()]
	if !isHost && !isService {
		m.RCode = dnsmessage.RCodeNameError
	}
	add := func(body dnsmessage.ResourceBody) {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class,
			TTL: 3600}, Body: body})
	}
	for _, text := range addresses {
		switch ip := netip.MustParseAddr(text); {
		case q.Type == dnsmessage.TypeA && ip.Is4():
			add(&dnsmessage.AResource{A: ip.As4()})
		case q.Type == dnsmessage.TypeAAAA && ip.Is6():
			add(&dnsmessage.AAAAResource{AAAA: ip.As16()})
		}
	}
	for i := range records {
		if q.Type == dnsmessage.TypeSRV {
			add(&records[i])
		}
	}
	return m.Pack()
}

func srv(target string, port, priority uint16) dnsmessage.SRVResource {
	return dnsmessage.SRVResource{Target: dnsmessage.MustNewName(target), Port: port, Priority: priority}
}

func finds(t *testing.T, open func(*url.URL) (discovery.Finder, error), host string) ([]string, error) {
	t.Helper()
	f, err := open(&url.URL{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it has nothing to close
	return f.Find(t.Context())
}

// TestHosts: Find returns all addresses of a name, and the new ones at once after a change.
func TestHosts(t *testing.T) {
	s := newServer(t)
	open := dns.Hosts(s.resolver())
	s.host("head.example.", "10.0.0.1", "10.0.0.2", "fd00::1")
	got, err := finds(t, open, "head.example.:7070")
	slices.Sort(got)
	if want := []string{"10.0.0.1:7070", "10.0.0.2:7070", "[fd00::1]:7070"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	s.host("head.example.", "10.0.0.3")
	if got, err := finds(t, open, "head.example.:7070"); err != nil || !slices.Equal(got, []string{"10.0.0.3:7070"}) {
		t.Errorf("%v, %v; want the new address", got, err)
	}
	var none *net.DNSError
	if _, err := finds(t, open, "nobody.example.:7070"); !errors.As(err, &none) || !none.IsNotFound {
		t.Errorf("%v; want that there is no such name", err)
	}
	if got, err := finds(t, open, "127.0.0.1:7070"); err != nil || !slices.Equal(got, []string{"127.0.0.1:7070"}) {
		t.Errorf("%v, %v; want the address itself", got, err)
	}
}

// TestServices: targets are in order of priority, with their ports; one without an address is left out.
func TestServices(t *testing.T) {
	s := newServer(t)
	open := dns.Services(s.resolver())
	s.host("a.example.", "10.0.0.1")
	s.host("b.example.", "10.0.0.2", "10.0.0.3")
	s.service("_troupe._tcp.example.", srv("b.example.", 7072, 20), srv("a.example.", 7071, 10), srv("gone.example.", 7073, 5))
	got, err := finds(t, open, "_troupe._tcp.example.")
	if len(got) == 3 {
		slices.Sort(got[1:])
	}
	if want := []string{"10.0.0.1:7071", "10.0.0.2:7072", "10.0.0.3:7072"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	s.service("_none._tcp.example.", srv(".", 0, 0))
	if _, err := finds(t, open, "_none._tcp.example."); !errors.Is(err, discovery.ErrNone) {
		t.Errorf("%v; want %v", err, discovery.ErrNone)
	}
	s.service("_lost._tcp.example.", srv("gone.example.", 7073, 5))
	if _, err := finds(t, open, "_lost._tcp.example."); err == nil || !strings.Contains(err.Error(), "gone.example") {
		t.Errorf("%v; want that gone.example has no address", err)
	}
}

// TestAddresses: an invalid address is refused before any query.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"dns://head:7070": "", "dns://head:7070/": "", "dns://[::1]:7070": "", "dns+srv://_troupe._tcp.head": "",
		"dns://head": "want dns://NAME:PORT", "dns://:7070": "want dns://NAME:PORT", "dns://head:http": "the port", "dns://head:0": "the port",
		"dns://head:65536":  "the port",
		"dns://head:7070/x": "remove what follows", "dns://head:7070?x": "remove what follows",
		"dns+srv://head:7070": "the port is in the records", "dns+srv://head/x": "remove what follows",
	} {
		_, err := discovery.Open(text)
		if want == "" && err != nil || want != "" && (!errors.Is(err, discovery.ErrAddress) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
