package lane

import (
	"net"
	"testing"
	"time"
)

// sockets returns two connected sockets, and the descriptor of the first.
func sockets(t *testing.T) (near, far net.Conn, fd uintptr) {
	t.Helper()
	near, far = tcpLink(t)()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(d uintptr) { fd = d }); err != nil {
		t.Fatal(err)
	}
	return near, far, fd
}

// TestWatch: a polling reader sees its own data, and stops polling when data comes for a sleeping reader or its time is over.
func TestWatch(t *testing.T) {
	_, farA, a := sockets(t)
	_, farB, b := sockets(t)
	var s sleepers
	var list pollList
	s.add(b)
	start := time.Now()
	if s.watch(a, &list) {
		t.Error("nothing has come, and there is something to read")
	}
	if took := time.Since(start); took < awake {
		t.Errorf("it was awake for %v, and for %v it should be", took, awake)
	}
	write(t, farB)
	eventually(t, func() bool {
		if s.watch(a, &list) {
			t.Error("what came for another reader is taken for this one's")
		}
		return list[1].Revents != 0
	})
	write(t, farA)
	eventually(t, func() bool { return s.watch(a, &list) })
	s.remove(b)
	if len(s.fds) != 0 {
		t.Errorf("%d are asleep after the only one has been removed", len(s.fds))
	}
	for range limitWatched + 1 {
		s.add(b)
	}
	if s.watch(a, &list) {
		t.Errorf("it watches %d sockets", limitWatched+2)
	}
}

// TestSleepers: a reader is on the list of sleepers while it waits, and not after its connection has ended.
func TestSleepers(t *testing.T) {
	near, far, _ := sockets(t)
	var s sleepers
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.fds)
	}
	r := newTryReader(near, func() error { return nil }, &s)
	ended := make(chan error)
	read := func() {
		_, err := r.Read(make([]byte, 8))
		ended <- err
	}
	go read()
	eventually(t, func() bool { return count() == 1 })
	write(t, far)
	if err := <-ended; err != nil || count() != 0 {
		t.Errorf("it read with %v, and %d are asleep", err, count())
	}
	go read()
	eventually(t, func() bool { return count() == 1 })
	_ = near.Close()
	if err := <-ended; err == nil || count() != 0 {
		t.Errorf("a closed connection was read with %v, and %d are asleep", err, count())
	}
}

func write(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("it did not happen within %v", patience)
		}
	}
}
