package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	coordinator = pki.Identity{Name: "head", Role: pki.Coordinator}
	worker      = pki.Identity{Name: "troupe-worker-0", Role: pki.Worker}
	viewer      = pki.Identity{Name: "eve", Role: pki.Viewer}
)

func newAuthority(t testing.TB) *pki.Authority {
	t.Helper()
	// Older than the certificates that some tests back-date.
	a, err := pki.NewAuthority(time.Now().Add(-1000 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t testing.TB, a *pki.Authority, id pki.Identity) tls.Certificate {
	t.Helper()
	return issueAt(t, a, id, time.Now(), nil)
}

func issueAt(t testing.TB, a *pki.Authority, id pki.Identity, now time.Time, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	cert, err := a.IssueAt(id, time.Hour, now, change)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newToken(t testing.TB, a *pki.Authority, role pki.Role) pki.Token {
	t.Helper()
	token, err := a.NewToken(role, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func always(cert tls.Certificate) func() (*tls.Certificate, error) {
	return func() (*tls.Certificate, error) { return &cert, nil }
}

// A meeting is the result of a connection. The client sends the secret once the server has answered, as a joining process
// does after its handshake.
type meeting struct {
	client, server       tls.ConnectionState
	clientErr, serverErr error
	got                  string // what of the secret the server has read
}

// meet connects two configurations. It is called in a bubble of synctest, where a peer that
// has stopped reading costs no time.
func meet(server, client *tls.Config) meeting {
	const answer, secret = "welcome", "the secret"
	var m meeting
	near, far := net.Pipe()
	for _, c := range []net.Conn{near, far} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	done := make(chan struct{})
	go func() { // ends with the connection
		defer close(done)
		defer func() { _ = far.Close() }()
		c := tls.Server(far, server)
		if m.serverErr = c.Handshake(); m.serverErr != nil {
			return
		}
		m.server = c.ConnectionState()
		if _, m.serverErr = io.WriteString(c, answer); m.serverErr != nil {
			return
		}
		buf := make([]byte, len(secret))
		var n int
		n, m.serverErr = io.ReadFull(c, buf)
		m.got = string(buf[:n])
	}()
	c := tls.Client(near, client)
	m.clientErr = func() error {
		if err := c.Handshake(); err != nil {
			return err
		}
		m.client = c.ConnectionState()
		if _, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
			return err
		}
		_, err := io.WriteString(c, secret)
		return err
	}()
	if m.clientErr != nil {
		_ = near.Close()
	}
	<-done
	_ = near.Close()
	return m
}

func (m meeting) err() error { return errors.Join(m.clientErr, m.serverErr) }

func write(t testing.TB, path string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func needModes(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes here")
	}
}

func newDir(t testing.TB) string { return filepath.Join(t.TempDir(), "authority") }
