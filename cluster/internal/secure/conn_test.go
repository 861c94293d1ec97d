package secure

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var serverConfig = sync.OnceValue(func() *tls.Config {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, MinVersion: tls.VersionTLS13}
})

var clientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}

// counted counts calls with data.
type counted struct {
	net.Conn
	reads, writes int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.Conn.Read(p)
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes++
	return c.Conn.Write(p)
}

// pair is a TCP connection after its handshake.
func pair(t testing.TB) (client, server *Conn, below *counted) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it has served its purpose
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	below = &counted{Conn: raw}
	client, server = Client(below, clientConfig), Server(other, serverConfig())
	t.Cleanup(func() {
		_ = raw.Close()
		_ = other.Close()
	})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }() // ends with the handshake, or with the connection
	if err := errors.Join(client.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return client, server, below
}

// TestBytes: all bytes arrive in order, for all sizes of writes and reads.
func TestBytes(t *testing.T) {
	client, server, _ := pair(t)
	content := make([]byte, 1<<20)
	_, _ = mathrand.NewChaCha8([32]byte{1}).Read(content)
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(recordBytes-2, recordBytes+2),
			rapid.IntRange(batchBytes-2, batchBytes+2), rapid.IntRange(0, 1<<20)), 1, 8).Draw(t, "written")
		reads := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1, 2*batchBytes)), 1, 8).Draw(t, "read")
		reads = append(reads, batchBytes) // or it takes long
		from, to := client, server
		if rapid.Bool().Draw(t, "back") {
			from, to = server, client
		}
		var want []byte
		for _, n := range sizes {
			want = append(want, content[:n]...)
		}
		written := make(chan error, 1)
		go func() { // ends with the reading
			for _, n := range sizes {
				if m, err := from.Write(content[:n]); err != nil || m != n {
					written <- errors.Join(err, io.ErrShortWrite)
					return
				}
			}
			written <- nil
		}()
		got := make([]byte, 0, len(want))
		for i := 0; len(got) < len(want); i++ {
			n := min(reads[i%len(reads)], len(want)-len(got))
			m, err := to.Read(got[len(got) : len(got)+n])
			if err != nil {
				t.Fatal(err)
			}
			got = got[:len(got)+m]
		}
		if err := <-written; err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v, other bytes", err)
		}
	})
}

// TestCalls: a megabyte takes one system call for each batch, in both directions, and a short message one.
func TestCalls(t *testing.T) {
	client, server, below := pair(t)
	const size = 8 << 20
	echoed := make(chan error, 1)
	go func() { // ends with the echo, or with the connection
		all := make([]byte, size)
		_, err := io.ReadFull(server, all)
		if err == nil {
			_, err = server.Write(all)
		}
		echoed <- err
	}()
	before := below.writes
	if _, err := client.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if n := below.writes - before; n > size/batchBytes*5/4 {
		t.Errorf("%d writes of 8 MiB", n)
	}
	if _, err := io.ReadFull(client, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := <-echoed; err != nil {
		t.Fatal(err)
	}
	if below.reads > size/recordBytes*2 { // as many as there are records, were it not for batches; how many there are is up to the system
		t.Errorf("%d reads of 8 MiB", below.reads)
	}
	before = below.writes
	if _, err := client.Write([]byte("short")); err != nil || below.writes != before+1 {
		t.Errorf("%v, %d writes of a short message", err, below.writes-before)
	}
}

// TestTogether: concurrent writes keep each message whole, and everything is sent when the last one returns.
func TestTogether(t *testing.T) {
	client, server, _ := pair(t)
	const writers, size = 4, 300 << 10
	var all sync.WaitGroup
	for k := range writers {
		all.Go(func() {
			if _, err := client.Write(bytes.Repeat([]byte{byte(k)}, size)); err != nil {
				t.Error(err)
			}
		})
	}
	got := make([]byte, writers*size)
	if _, err := io.ReadFull(server, got); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for k := range writers {
		if n := bytes.Count(got, []byte{byte(k)}); n != size {
			t.Errorf("%d bytes of writer %d", n, k)
		}
	}
}

// TestBroken: after a failed write, all later writes fail.
func TestBroken(t *testing.T) {
	client, _, below := pair(t)
	if client.NetConn() != below {
		t.Error("not the connection that was given")
	}
	_ = client.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := client.Write(make([]byte, 64<<20)) // nobody reads
	var timeout net.Error
	if n == 64<<20 || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = client.SetWriteDeadline(time.Time{})
	if _, err := client.Write([]byte("more")); err == nil {
		t.Error("written behind a record that is missing")
	}
}

// TestClosed: closing ends a blocked read and a blocked write.
func TestClosed(t *testing.T) {
	client, _, below := pair(t)
	ended := make(chan error, 2)
	go func() { // ends with the connection
		_, err := client.Read(make([]byte, 1))
		ended <- err
	}()
	go func() { // ends with the connection
		_, err := client.Write(make([]byte, 64<<20))
		ended <- err
	}()
	time.Sleep(20 * time.Millisecond)
	_ = below.Close()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	}
}
