package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"testing"
)

// TestStrangersMakeRoom: silent connections may use only a part of the process's open files, and displace only each other. One
// that proves its identity is always accepted and stays.
func TestStrangersMakeRoom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of a test
	const files = 256
	a := newAdmission(false, files)
	defer a.close()
	if a.most != files/2 || a.mostStrangers != files/8 {
		t.Fatalf("of %d files there are %d connections, %d of strangers", files, a.most, a.mostStrangers)
	}
	connect := func() (client net.Conn, server *admitted, err error) {
		t.Helper()
		if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		raw, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server, err = a.admit(raw)
		if err != nil {
			_ = raw.Close()
		}
		return client, server, err
	}
	verified := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}
	var first net.Conn
	known := 0
	for i := range 3 * files {
		client, c, err := connect()
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if i == 0 {
			first = client
		}
		if i%40 == 39 {
			if err := c.shown(verified); err != nil {
				t.Fatal(err)
			}
			known++
		}
		a.mu.Lock()
		if a.strange > a.mostStrangers || len(a.open) != a.strange+known {
			t.Errorf("after %d connections %d are open, %d strangers, %d known", i+1, len(a.open), a.strange, known)
		}
		a.mu.Unlock()
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) {
		t.Errorf("the oldest stranger is connected: %v", err)
	}
	for known < a.most {
		_, c, err := connect()
		if err == nil {
			err = c.shown(verified)
		}
		if err != nil {
			t.Fatalf("with %d known: %v", known, err)
		}
		known++
	}
	if _, _, err := connect(); !errors.Is(err, errBusy) {
		t.Errorf("where all are known, and as many as may be: %v", err)
	}
	if big := newAdmission(false, 1<<20); big.most != LimitConnections || big.mostStrangers != LimitStrangers {
		t.Errorf("with many files %d connections, %d of strangers", big.most, big.mostStrangers)
	}
}
