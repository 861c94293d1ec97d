//go:build unix

package lane

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestAcksWhileItCloses: a stream sends its acknowledgments while another goroutine closes connections. That one holds the
// lock of all that the peer has sent, and waits until the stream no longer uses its socket.
func TestAcksWhileItCloses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	far, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = far.Close(), near.Close() })
	i := newIn(nil, ID{1}, 1)
	s := &inStream{in: i, conn: near, stop: make(chan struct{}, 1)}
	i.mu.Lock()
	i.setArrived(1)
	i.setArrived(3)
	s.acks = []uint64{1, 3}
	done := make(chan error, 1)
	r := newTryReader(near, func() error {
		err := s.flushAcks()
		done <- err
		return err
	}, nil)
	read := make(chan error, 1)
	go func() {
		_, err := r.Read(make([]byte, 1))
		read <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("acknowledgements wait for the lock that is held while the connection is closed")
	}
	abort(near) // returns: nobody uses the socket but to wait
	i.mu.Unlock()
	if err := <-read; err == nil {
		t.Error("a closed connection was read")
	}
	sent, err := io.ReadAll(far)
	if want := len(new(prefix).append(nil)) + 8; err != nil || len(sent) != want { // 2 is missing: 3 is named
		t.Errorf("%d bytes of acknowledgements, want %d; %v", len(sent), want, err)
	}
}
