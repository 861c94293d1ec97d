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

// LocalConfig configures a cluster of processes on this machine.
type LocalConfig struct {
	Workers int           // number of worker processes
	Threads int           // CPU threads of all workers together
	Silence time.Duration // see Config
	Lease   time.Duration // see Config
	// Command returns the command of a worker process. The process calls Work: it joins at the address,
	// reads its token from standard input, and ends when standard input closes.
	Command func(ctx context.Context, name, join string, threads int) *exec.Cmd
	Logger  *slog.Logger // nil: no log
}

// Local is a coordinator in this process with worker processes on this machine. It starts the
// workers, restarts those that exit, and stops them at Close.
type Local struct {
	*Coordinator
	cfg     LocalConfig
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	failed error
}

// Pauses before a worker is restarted.
const (
	respawnFirst = 100 * time.Millisecond
	respawnMost  = 5 * time.Second
)

// startTime is how long the workers may take to start and join.
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
	waiting, stop := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("the workers took more than %v to start", startTime))
	defer stop()
	if err := l.Wait(waiting, cfg.Workers); err != nil {
		l.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		return nil, errors.Join(err, l.failed)
	}
	return l, nil
}

// keep starts a worker, and restarts it whenever it exits.
func (l *Local) keep(ctx context.Context, name string, threads int) {
	for pause := respawnFirst; ; pause = min(2*pause, respawnMost) {
		began := time.Now()
		err := l.spawn(ctx, name, threads)
		if ctx.Err() != nil {
			return
		}
		l.cfg.Logger.Warn("worker process exited; it restarts", "worker", name, "err", err)
		l.mu.Lock()
		l.failed = fmt.Errorf("%s: %w", name, err)
		l.mu.Unlock()
		for _, m := range l.beats.Members() { // no beat is needed to know that it has failed
			if m.Name == name {
				l.beats.Expel(m.ID, fmt.Errorf("its process exited: %w", err))
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

// spawn runs a worker process until it exits, and returns why.
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
		return fmt.Errorf("start the process: %w", err)
	}
	// The worker exits when this pipe closes, however this process ends.
	if _, err := io.WriteString(in, token.String()+"\n"); err != nil {
		l.cfg.Logger.Warn("can't pass a worker its token", "worker", name, "err", err)
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
		err = errors.New("exit status 0")
	}
	return err
}

// endTime is how long a worker process may take to exit before it is killed.
const endTime = 5 * time.Second

// Close stops the workers and the coordinator.
func (l *Local) Close() {
	l.cancel()
	l.running.Wait()
	l.Coordinator.Close()
}
