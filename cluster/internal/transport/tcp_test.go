package transport_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// authorityOf is the authority of the nodes with TLS.
var authorityOf *authority

// pairs are two nodes without TLS, and with.
func pairs(t *testing.T, f func(t *testing.T, a, b nodeConfig)) {
	t.Run("plain", func(t *testing.T) { f(t, nodeConfig{}, nodeConfig{}) })
	t.Run("tls", func(t *testing.T) {
		ca := newAuthority(t)
		authorityOf = ca
		f(t, ca.good("a", "coordinator"), ca.good("b", "worker"))
	})
}

func TestEnvelopesBothWays(t *testing.T) {
	pairs(t, func(t *testing.T, ca, cb nodeConfig) {
		a, b := startNode(t, ca), startNode(t, cb)
		const n = 5_000
		for round := range uint64(2) {
			a.do(command{Op: "send", To: b.Address, Sender: "a", From: 1 + round*n, N: n, Bytes: 100})
			b.do(command{Op: "send", To: a.Address, Sender: "b", From: 1 + round*n, N: n, Bytes: 100})
		}
		for _, c := range []struct {
			at           *node
			sender, role string
		}{{a, "b", "worker"}, {b, "a", "coordinator"}} {
			got := c.at.awaitCount(c.sender, 2*n)
			if got.Disorder != 0 || got.Count != 2*n {
				t.Errorf("from %s: %+v", c.sender, got)
			}
			if ca.Cert == nil && got.Peer.Name != "" || ca.Cert != nil && (got.Peer.Name != c.sender || got.Peer.Role != c.role ||
				got.Peer.Address == "") {
				t.Errorf("from %s: peer %+v", c.sender, got.Peer)
			}
		}
	})
}

func TestStreams(t *testing.T) {
	pairs(t, func(t *testing.T, ca, cb nodeConfig) {
		cb.Data = "127.0.0.1:0"
		a, b := startNode(t, ca), startNode(t, cb)
		for _, to := range []string{b.Address, b.Data} {
			for _, bytes := range []int{0, 1, 1 << 20} {
				if got := a.do(command{Op: "dial", To: to, Protocol: "echo", Bytes: bytes}); got.Error != "" {
					t.Error(got.Error)
				}
			}
		}
		want := "  false"
		if ca.Cert != nil {
			want = "a coordinator true"
		}
		if got := a.do(command{Op: "dial", To: b.Address, Protocol: "who"}); got.Echo != want {
			t.Errorf("who: %q, %s; want %q", got.Echo, got.Error, want)
		}
		if got := a.do(command{Op: "dial", To: b.Address, Protocol: "nothing"}); !got.Refused {
			t.Errorf("an unknown protocol: %+v", got)
		}
		got := a.do(command{Op: "dial", To: b.Address, Protocol: "operate"})
		if ca.Cert != nil && (!got.Refused || !strings.Contains(got.Error, "role")) || ca.Cert == nil && got.Error != "" {
			t.Errorf("a protocol of another role: %+v", got)
		}
		// gRPC clears deadlines of what it has handed over; not the handler's.
		for range 100 {
			if got := a.do(command{Op: "dial", To: b.Address, Protocol: "impatient"}); got.Echo != "true" {
				t.Fatalf("a handler's deadline: %+v", got)
			}
		}
		if got := a.do(command{Op: "dial", To: b.Address, Protocol: "buffers"}); got.Echo != "abc" {
			t.Errorf("buffers: %+v", got)
		}
		// Envelopes go through the same port.
		a.do(command{Op: "send", To: b.Address, Sender: "a", From: 1, N: 10})
		b.awaitCount("a", 10)
	})
}

// TestRestart: a restarted peer at the same address receives new messages.
func TestRestart(t *testing.T) {
	pairs(t, func(t *testing.T, ca, cb nodeConfig) {
		a, b := startNode(t, ca), startNode(t, cb)
		a.do(command{Op: "send", To: b.Address, Sender: "a", From: 1, N: 10})
		b.awaitCount("a", 10)
		cb.Listen = b.Address
		b.kill()
		a.do(command{Op: "send", To: cb.Listen, Sender: "a", From: 100, N: 10}) // lost, or not
		b = startNode(t, cb)
		end := time.Now().Add(time.Minute)
		for seq := uint64(1000); ; seq++ {
			a.do(command{Op: "send", To: b.Address, Sender: "a", From: seq, N: 1})
			if got := b.do(command{Op: "report"}); got.Received["a"] != nil && got.Received["a"].Last >= 1000 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("nothing arrives after the restart")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// TestPID: protoactor's own messages don't reach other processes.
func TestPID(t *testing.T) {
	a, b := startNode(t, nodeConfig{}), startNode(t, nodeConfig{})
	a.do(command{Op: "send", To: b.Address, Sender: "a", From: 1, N: 1})
	b.awaitCount("a", 1)
	a.do(command{Op: "pid", To: b.Address})
	a.do(command{Op: "send", To: b.Address, Sender: "a", From: 2, N: 1})
	b.awaitCount("a", 2)
	if got := b.do(command{Op: "report"}); len(got.Received) != 1 || len(got.Log) != 0 {
		t.Errorf("received %v, log %q", got.Received, got.Log)
	}
}

// TestPanic: a handler's panic is logged, and later messages arrive.
func TestPanic(t *testing.T) {
	a, b := startNode(t, nodeConfig{}), startNode(t, nodeConfig{})
	a.do(command{Op: "panic", To: b.Address})
	a.do(command{Op: "send", To: b.Address, Sender: "a", From: 1, N: 1})
	b.awaitCount("a", 1)
	b.awaitLog("as told")
}

func TestListen(t *testing.T) {
	n := startNode(t, nodeConfig{Advertise: "localhost:0", Data: "127.0.0.1:0"})
	if host, port, err := net.SplitHostPort(n.Address); err != nil || host != "localhost" || port == "0" {
		t.Errorf("address %s", n.Address)
	}
	a := startNode(t, nodeConfig{})
	a.do(command{Op: "send", To: n.Address, Sender: "a", From: 1, N: 1})
	n.awaitCount("a", 1)
	for name, cfg := range map[string]nodeConfig{
		"already in use": {Listen: a.Address},
		"for tensors":    {Data: a.Address},
		"missing port":   {Listen: "127.0.0.1", Insecure: true},
		"advertise":      {Advertise: "127.0.0.1", Insecure: true},
	} {
		if _, got := tryNode(t, cfg); !strings.Contains(got.Error, name) {
			t.Errorf("%+v: %s; want %s", cfg, got.Error, name)
		}
	}
	// gRPC has nothing to find at the address of data.
	conn := attacker{address: n.Data}.dialRaw(t)
	_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if got := readAll(conn); got != "connection closed" {
		t.Errorf("gRPC at the address of data: %s", got)
	}
	n.awaitLog("at the address for tensors")
}

func TestClose(t *testing.T) {
	pairs(t, func(t *testing.T, ca, cb nodeConfig) {
		a, b := startNode(t, ca), startNode(t, cb)
		a.do(command{Op: "send", To: b.Address, Sender: "a", From: 1, N: 10})
		b.do(command{Op: "send", To: a.Address, Sender: "b", From: 1, N: 10})
		b.awaitCount("a", 10)
		a.awaitCount("b", 10)
		// To an address where nobody listens, too.
		a.do(command{Op: "send", To: "127.0.0.1:1", Sender: "a", From: 1, N: 10})
		// And to one that says nothing.
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
		a.do(command{Op: "send", To: silent.Addr().String(), Sender: "a", From: 1, N: 10})
		var d transport.Dialer
		if ca.Cert != nil {
			d.TLS = authorityOf.client(ca)
		}
		conn, err := d.Dial(t.Context(), a.Address, "echo")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		defer func() {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("a stream goes on after its transport was closed")
			}
		}()
		for _, n := range []*node{a, b} {
			if got := n.do(command{Op: "close"}); got.Took > 30*time.Second || got.Error != "" {
				t.Errorf("closing took %v; %s", got.Took, got.Error)
			} else {
				t.Logf("closing took %v", got.Took)
			}
		}
	})
}

func TestInsecure(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		listen, advertise, data string
		off                     bool
	}{
		{listen: "127.0.0.1:0"},
		{listen: "localhost:0"},
		{listen: "[::1]:0"},
		{listen: "127.0.0.1:0", advertise: "localhost:0"},
		{listen: ":0", advertise: "127.0.0.1:0", off: true},
		{listen: "0.0.0.0:0", advertise: "127.0.0.1:0", off: true},
		{listen: "127.0.0.1:0", advertise: "192.0.2.1:70", off: true},
		{listen: "127.0.0.1:0", data: ":0", off: true},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.listen, c.advertise, c.data), func(t *testing.T) {
			cfg := nodeConfig{Listen: c.listen, Advertise: c.advertise, Data: c.data}
			n, got := tryNode(t, cfg)
			if strings.Contains(got.Error, "cannot assign") {
				t.Skip("no IPv6 here")
			}
			if got.Insecure != c.off || !c.off && got.Error != "" {
				t.Fatalf("without TLS: %+v", got)
			}
			n.kill()
			if !c.off {
				return
			}
			cfg.Insecure = true
			n = startNode(t, cfg)
			if log := n.do(command{Op: "report"}).Log; len(log) == 0 || !strings.Contains(log[0], "INSECURE") {
				t.Errorf("no warning: %q", log)
			}
			n.kill()
			secure := ca.good("a", "worker")
			secure.Listen, secure.Advertise, secure.Data = c.listen, c.advertise, c.data
			startNode(t, secure)
		})
	}
	if _, got := tryNode(t, nodeConfig{Listen: ":0", Insecure: true}); !strings.Contains(got.Error, "--advertise") {
		t.Errorf("no address to reach it by: %+v", got)
	}
}
