package beat_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// silence is long enough for a loaded machine to beat in.
const silence = 10 * time.Second

// coordinator is a server and its reports.
type coordinator struct {
	t        *testing.T
	server   *beat.Server
	listener net.Listener
	serving  sync.WaitGroup
	joined   chan beat.Member
	gone     chan error
	status   chan *wire.StatusReply

	mu    sync.Mutex
	conns []net.Conn
}

func newCoordinator(t *testing.T, silence time.Duration) *coordinator {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &coordinator{t: t, listener: l, joined: make(chan beat.Member, 16), gone: make(chan error, 16),
		status: make(chan *wire.StatusReply, 1024)}
	c.server = beat.NewServer(beat.ServerConfig{
		Self: func() *wire.Peer { return &wire.Peer{Name: "coordinator"} }, Silence: silence, Logger: slog.New(slog.DiscardHandler),
		Admit: func(h *wire.Hello, _ string) error {
			if h.GetBuild() != "b1" {
				return errors.New("its build is " + h.GetBuild() + ", here is b1")
			}
			return nil
		},
		Joined: func(m beat.Member) { c.joined <- m },
		Gone:   func(_ beat.Member, why error) { c.gone <- why },
		Status: func(_ beat.Member, s *wire.StatusReply) {
			select {
			case c.status <- s:
			default:
			}
		},
		Probe: func(ctx context.Context, address string) error {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			return err
		},
	})
	c.serving.Add(1)
	go func() { // ends with the listener
		defer c.serving.Done()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.conns = append(c.conns, conn)
			c.mu.Unlock()
			c.serving.Add(1)
			go func() {
				defer c.serving.Done()
				c.server.Serve(conn, "")
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		c.server.Close()
		c.serving.Wait()
	})
	return c
}

// cut closes every stream so far.
func (c *coordinator) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// worker is a client with an open port, which shows that its process is alive.
type worker struct {
	id    uuid.UUID
	alive net.Listener
	*beat.Client
	end context.CancelFunc
	err chan error
}

func (c *coordinator) worker(build string, dial func(ctx context.Context) (net.Conn, error)) *worker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	w := &worker{id: uuid.New(), alive: l, err: make(chan error, 1)}
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", c.listener.Addr().String())
		}
	}
	w.Client = beat.NewClient(beat.ClientConfig{
		Dial: dial, Logger: slog.New(slog.DiscardHandler), Welcomed: func(*wire.Welcome) {},
		Hello:  &wire.Hello{Build: build, Worker: &wire.Peer{Name: "w", Incarnation: w.id[:], Address: l.Addr().String()}},
		Status: func() []*wire.StatusReply { return []*wire.StatusReply{{Attempt: w.id[:]}} },
	})
	ctx, cancel := context.WithCancel(context.Background())
	w.end = cancel
	go func() { w.err <- w.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		_ = l.Close()
	})
	return w
}

func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not happen", what)
	}
	return v
}

func TestLife(t *testing.T) {
	c := newCoordinator(t, silence)
	w := c.worker("b1", nil)
	if m := receive(t, c.joined, "joining"); m.ID != w.id || m.Name != "w" {
		t.Errorf("%+v joined", m)
	}
	if s := receive(t, c.status, "a status"); string(s.GetAttempt()) != string(w.id[:]) {
		t.Errorf("status %v", s)
	}
	// A stream that breaks is no death.
	c.cut()
	for len(c.status) > 0 {
		<-c.status
	}
	receive(t, c.status, "a status behind the break")
	for range 3 {
		receive(t, c.status, "a beat")
	}
	if all := c.server.Members(); len(all) != 1 || all[0].RoundTrip <= 0 || all[0].Offset.Abs() > all[0].RoundTrip {
		t.Errorf("members %+v", all)
	}
	if _, trip := w.Clock(); trip <= 0 || w.Quiet() > silence {
		t.Errorf("the worker has measured a round trip of %v, and heard nothing for %v", trip, w.Quiet())
	}
	w.end()
	if err := receive(t, w.err, "the end"); err != nil {
		t.Error(err)
	}
	if why := receive(t, c.gone, "the goodbye"); !errors.Is(why, beat.ErrGoodbye) {
		t.Errorf("gone: %v", why)
	}
	if len(c.gone) > 0 || len(c.joined) > 0 {
		t.Errorf("%d were gone again, %d joined again", len(c.gone), len(c.joined))
	}
}

// TestDead: a closed port shows that a process is dead, long before its silence does.
func TestDead(t *testing.T) {
	c := newCoordinator(t, time.Hour)
	var conns []net.Conn
	w := c.worker("b1", func(ctx context.Context) (net.Conn, error) {
		if len(conns) > 0 {
			return nil, errors.New("dead")
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", c.listener.Addr().String())
		conns = append(conns, conn)
		return conn, err
	})
	receive(t, c.joined, "joining")
	_ = w.alive.Close()
	c.cut()
	if why := receive(t, c.gone, "the death"); !errors.Is(why, beat.ErrDead) {
		t.Errorf("gone: %v", why)
	}
}

// TestSilent: a silent process is removed, and refused when it wakes up.
func TestSilent(t *testing.T) {
	c := newCoordinator(t, 300*time.Millisecond)
	thaw := make(chan struct{})
	first := true
	w := c.worker("b1", func(ctx context.Context) (net.Conn, error) {
		if !first { // a worker that hears nothing for a moment hangs up and dials again
			select {
			case <-thaw:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", c.listener.Addr().String())
		if err != nil || !first {
			return conn, err
		}
		first = false
		return &freezing{Conn: conn, thaw: thaw}, nil
	})
	receive(t, c.joined, "joining")
	if why := receive(t, c.gone, "the silence"); !errors.Is(why, beat.ErrSilent) {
		t.Errorf("gone: %v", why)
	}
	close(thaw)
	if err := receive(t, w.err, "the refusal"); !errors.Is(err, beat.ErrRefused) || !strings.Contains(err.Error(), "removed it before") {
		t.Errorf("it wakes up, and goes on: %v", err)
	}
}

// freezing is a connection that sends the greeting, and then nothing until it thaws.
type freezing struct {
	net.Conn
	writes int
	thaw   chan struct{}
}

func (f *freezing) Write(p []byte) (int, error) {
	if f.writes++; f.writes > 1 {
		<-f.thaw
	}
	return f.Conn.Write(p)
}

func TestRefused(t *testing.T) {
	c := newCoordinator(t, silence)
	w := c.worker("b2", nil)
	if err := receive(t, w.err, "the refusal"); !errors.Is(err, beat.ErrRefused) ||
		!strings.Contains(err.Error(), "its build is b2, here is b1") {
		t.Errorf("another build: %v", err)
	}
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff", "\x00\x00\x00\x00", strings.Repeat("x", 100)} {
		conn, err := net.Dial("tcp", c.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	if all := c.server.Members(); len(all) > 0 || len(c.joined) > 0 {
		t.Errorf("members %+v", all)
	}
}

// FuzzServe: no data on a stream makes the coordinator fail.
func FuzzServe(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		s := beat.NewServer(beat.ServerConfig{Silence: time.Minute, Self: func() *wire.Peer { return &wire.Peer{} },
			Logger: slog.New(slog.DiscardHandler),
			Admit:  func(*wire.Hello, string) error { return nil }, Gone: func(beat.Member, error) {},
			Probe: func(context.Context, string) error { return nil }})
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Serve(ours, "")
		}()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_ = theirs.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = theirs.Write(text)
		_ = theirs.Close()
		s.Close()
		<-done
	})
}
