package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"time"
)

// LocalConfig is what a cluster of processes of this machine needs.
type LocalConfig struct {
	Workers int
	Threads int // of the CPU, of all workers together
	Silence time.Duration
	Lease   time.Duration
	// Command makes the process of a worker, which calls Work: it is to join at an address, to
	// read its token from its standard input, and to end when that does.
	Command func(ctx context.Context, name, join string, threads int) *exec.Cmd
	Logger  *slog.Logger
}

// Local is a coordinator in this process, with workers that it starts, starts again when
// they die, and ends.
type Local struct {
	*Coordinator
	cfg     LocalConfig
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	failed error
}

// Pauses before a worker that died is started again.
const (
	respawnFirst = 100 * time.Millisecond
	respawnMost  = 5 * time.Second
)

// startTime is how long the workers of this machine may take to join.
const startTime = 60 * time.Second

// NewLocal starts the workers and waits until all have joined.
func NewLocal(ctx context.Context, cfg LocalConfig) (*Local, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := NewCoordinator(Config{Listen: "127.0.0.1:0", Silence: cfg.Silence, Lease: cfg.Lease, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	l := &Local{Coordinator: c, cfg: cfg}
	living, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for i := range cfg.Workers {
		threads := cfg.Threads*(i+1)/cfg.Workers - cfg.Threads*i/cfg.Workers
		l.running.Add(1)
		go func() { // ends with living
			defer l.running.Done()
			l.keep(living, fmt.Sprintf("worker-%d", i), max(1, threads))
		}()
	}
	waiting, stop := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("they took more than %v to start", startTime))
	defer stop()
	if err := l.Wait(waiting, cfg.Workers); err != nil {
		l.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		return nil, errors.Join(err, l.failed)
	}
	return l, nil
}

// keep keeps a worker alive.
func (l *Local) keep(ctx context.Context, name string, threads int) {
	for pause := respawnFirst; ; pause = min(2*pause, respawnMost) {
		began := time.Now()
		err := l.spawn(ctx, name, threads)
		if ctx.Err() != nil {
			return
		}
		l.cfg.Logger.Warn("a worker has died", "worker", name, "err", err)
		l.mu.Lock()
		l.failed = fmt.Errorf("%s: %w", name, err)
		l.mu.Unlock()
		for _, m := range l.beats.Members() { // whose death is known without any beat
			if m.Name == name {
				l.beats.Expel(m.ID, fmt.Errorf("its process has ended: %w", err))
			}
		}
		if time.Since(began) > respawnMost {
			pause = respawnFirst
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// spawn runs a worker until it ends.
func (l *Local) spawn(ctx context.Context, name string, threads int) error {
	token, err := l.NewToken(RoleWorker, time.Minute)
	if err != nil {
		return err
	}
	killed, kill := context.WithCancel(context.Background())
	defer kill()
	cmd := l.cfg.Command(killed, name, l.Address(), threads)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting it: %w", err)
	}
	// The worker ends when this pipe does, however this process ends.
	if _, err := io.WriteString(in, token.String()+"\n"); err != nil {
		l.cfg.Logger.Warn("a worker didn't take its token", "worker", name, "err", err)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = in.Close()
		slow := time.AfterFunc(endTime, kill)
		<-ended
		slow.Stop()
	})
	err = cmd.Wait()
	close(ended)
	stop()
	if err == nil {
		err = errors.New("it has left")
	}
	return err
}

// endTime is how long a worker may take to end.
const endTime = 5 * time.Second

// Close ends the workers, and the coordinator.
func (l *Local) Close() {
	l.cancel()
	l.running.Wait()
	l.Coordinator.Close()
}
