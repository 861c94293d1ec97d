package beat_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestReach: an unreachable process is told so and is not a member. Others can join during the check. A member is not checked
// again.
func TestReach(t *testing.T) {
	tried, far := make(chan string, 16), make(chan struct{})
	unreachable := make(chan []*wire.Unreachable, 1024)
	joined := make(chan beat.Member, 16)
	server := beat.NewServer(beat.ServerConfig{
		Self: func() *wire.Peer { return &wire.Peer{Name: "coordinator"} }, Silence: silence, Logger: slog.New(slog.DiscardHandler),
		Reach: func(ctx context.Context, h *wire.Hello, _ string) error {
			tried <- h.GetWorker().GetName()
			if h.GetWorker().GetName() != "far" {
				return nil
			}
			if _, limited := ctx.Deadline(); !limited {
				t.Error("it may take for ever")
			}
			select {
			case <-far:
			case <-ctx.Done():
			}
			return fmt.Errorf("%w: nobody answers", beat.ErrUnreachable)
		},
		Admit:  func(*wire.Hello, string) error { return nil },
		Joined: func(m beat.Member) { joined <- m }, Gone: func(beat.Member, error) {}, Probe: func(context.Context, string) error { return nil },
		Unreachable: func(_ beat.Member, far []*wire.Unreachable) { unreachable <- far },
	})
	var serving sync.WaitGroup
	var mu sync.Mutex
	var streams []net.Conn
	begin := func(name string) (done chan error, end context.CancelFunc) {
		id := uuid.New()
		client := beat.NewClient(beat.ClientConfig{
			Dial: func(context.Context) (net.Conn, error) {
				ours, theirs := net.Pipe()
				mu.Lock()
				streams = append(streams, ours)
				mu.Unlock()
				serving.Go(func() { server.Serve(ours, "") })
				return theirs, nil
			},
			Hello: &wire.Hello{Worker: &wire.Peer{Name: name, Incarnation: id[:], Address: "127.0.0.1:1"}}, Welcomed: func(*wire.Welcome) {},
			Status:      func() []*wire.StatusReply { return nil }, // it has no ranks
			Unreachable: func() []*wire.Unreachable { return []*wire.Unreachable{{ForS: 5}} },
			Logger:      slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done = make(chan error, 1)
		go func() { done <- client.Run(ctx) }() // ends with ctx
		return done, cancel
	}
	refused, _ := begin("far")
	if name := receive(t, tried, "a try"); name != "far" {
		t.Errorf("%s is tried", name)
	}
	ended, end := begin("near")
	if m := receive(t, joined, "joining, beside the try"); m.Name != "near" {
		t.Errorf("%s joined", m.Name)
	}
	if all := receive(t, unreachable, "what it can't reach"); len(all) != 1 || all[0].GetForS() != 5 {
		t.Errorf("it can't reach %v", all)
	}
	close(far)
	if err := receive(t, refused, "the refusal"); !errors.Is(err, beat.ErrRefused) || !errors.Is(err, beat.ErrUnreachable) ||
		beat.NotYet(err) || !strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("the worker is told %v", err)
	}
	receive(t, tried, "the other try")
	mu.Lock()
	for _, conn := range streams {
		_ = conn.Close()
	}
	mu.Unlock()
	for len(unreachable) > 0 {
		<-unreachable
	}
	receive(t, unreachable, "a beat on another stream")
	if len(tried) > 0 || len(server.Members()) != 1 {
		t.Errorf("%d tries more, members %+v", len(tried), server.Members())
	}
	end()
	if err := receive(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	server.Close()
	serving.Wait()
}

// TestFailedTries: each failed try that is followed by another one is reported with its reason.
func TestFailedTries(t *testing.T) {
	away, final := errors.New("away"), errors.New("never")
	tries := 0
	told := 0
	client := beat.NewClient(beat.ClientConfig{
		Dial: func(context.Context) (net.Conn, error) {
			if tries++; tries > 3 {
				return nil, final
			}
			return nil, away
		},
		Failed: func(err error) {
			if told++; !errors.Is(err, away) {
				t.Errorf("told %v", err)
			}
		},
		Final: func(err error) bool { return errors.Is(err, final) }, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := client.Run(ctx); !errors.Is(err, final) || told != 3 {
		t.Errorf("it ends with %v, and has told %d errors", err, told)
	}
}
