package beat_test

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/wire"
)

// greet begins a stream as a worker does, up to the welcome.
func greet(t *testing.T, conn net.Conn, id uuid.UUID, address string) {
	t.Helper()
	hello := &wire.Hello{Build: "b1", Worker: &wire.Peer{Name: "w", Incarnation: id[:], Address: address}}
	if err := wire.WriteFrame(conn, hello, beat.LimitBeatBytes); err != nil {
		t.Fatal(err)
	}
}

// TestGreetings: a worker greets again if its first greeting is not answered for long, so a coordinator that just started reads
// several greetings at once. They count as one member, which joins once and does not count as restarted.
func TestGreetings(t *testing.T) {
	const greetings = 4
	var server *beat.Server
	var admitted atomic.Int32
	second := make(chan struct{})
	joined, gone := make(chan beat.Member, greetings), make(chan error, greetings)
	server = beat.NewServer(beat.ServerConfig{
		Self: func() *wire.Peer { return &wire.Peer{Name: "coordinator"} }, Silence: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Admit: func(h *wire.Hello, _ string) error {
			if admitted.Add(1) == 2 {
				close(second)
			}
			select { // what is admitted beside it would be seen here
			case <-second:
			case <-time.After(200 * time.Millisecond):
			}
			for _, m := range server.Members() {
				if m.Name == h.GetWorker().GetName() {
					server.Expel(m.ID, errors.New("it was started again"))
				}
			}
			return nil
		},
		Joined: func(m beat.Member) { joined <- m },
		Gone:   func(_ beat.Member, why error) { gone <- why },
	})
	var serving sync.WaitGroup
	var far []net.Conn
	id := uuid.New()
	for range greetings {
		ours, theirs := net.Pipe()
		far = append(far, theirs)
		serving.Add(1)
		go func() {
			defer serving.Done()
			server.Serve(ours, "")
		}()
		greet(t, theirs, id, "127.0.0.1:1")
	}
	for i, conn := range far {
		var w wire.Welcome
		if err := wire.ReadFrame(conn, &w, beat.LimitBeatBytes); err != nil || w.GetError() != "" {
			t.Errorf("greeting %d: %v, %q", i, err, w.GetError())
		}
	}
	if m := receive(t, joined, "joining"); m.ID != id {
		t.Errorf("%v joined, want %v", m.ID, id)
	}
	if all := server.Members(); len(all) != 1 || all[0].ID != id || admitted.Load() != 1 {
		t.Errorf("members %+v, after %d admissions; want one of each", all, admitted.Load())
	}
	server.Close()
	for _, conn := range far {
		_ = conn.Close()
	}
	serving.Wait()
	if len(joined) > 0 || len(gone) > 0 {
		t.Errorf("%d joined again, and %d were gone", len(joined), len(gone))
	}
}

// TestExpelledAtOnce: a worker that is removed before its welcome is written never joins.
func TestExpelledAtOnce(t *testing.T) {
	c := newCoordinator(t, time.Hour)
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.server.Serve(ours, "")
	}()
	id := uuid.New()
	greet(t, theirs, id, "127.0.0.1:1")
	for len(c.server.Members()) == 0 { // then the welcome waits for its reader
		time.Sleep(time.Millisecond)
	}
	c.server.Expel(id, beat.ErrDead)
	var w wire.Welcome
	if err := wire.ReadFrame(theirs, &w, beat.LimitBeatBytes); err != nil {
		t.Error(err)
	}
	receive(t, served, "the stream's end")
	_ = theirs.Close()
	if all := c.server.Members(); len(all) > 0 || len(c.joined) > 0 || len(c.gone) > 0 {
		t.Errorf("members %+v, %d joined, %d gone; want none", all, len(c.joined), len(c.gone))
	}
}

// TestUnwelcomed: the death of a worker before its welcome is written is detected as any other.
func TestUnwelcomed(t *testing.T) {
	c := newCoordinator(t, time.Hour)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.server.Serve(ours, "")
	}()
	id := uuid.New()
	greet(t, theirs, id, closed.Addr().String())
	_ = theirs.Close()
	if m := receive(t, c.joined, "joining"); m.ID != id {
		t.Errorf("%v joined, want %v", m.ID, id)
	}
	if why := receive(t, c.gone, "its death"); !errors.Is(why, beat.ErrDead) {
		t.Errorf("gone: %v", why)
	}
	receive(t, served, "the stream's end")
}
