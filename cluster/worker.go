package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/locate"
	"github.com/troupe-ml/troupe/cluster/internal/logring"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
)

// WorkerConfig is what a worker needs.
type WorkerConfig struct {
	Join        string // the coordinator's host:port, or by what package discovery finds it
	Token       Token  // by which it joins, where CertFile has no certificate yet
	CertFile    string // where its certificate is kept; "": it joins again with each start
	Name        string // in the cluster; "": the host's
	Listen      string // host:port; "": any port of the address by which it reaches the coordinator
	Advertise   string // host:port that others reach it by, where that is another
	DataListen  string // host:port of a second network for tensors; "": the same
	Threads     int    // of the CPU; 0: all cores
	LaneStreams int    // connections that carry tensors to a process; 0: 2
	// System, if there is one, is the caller's own: it must have no address yet.
	System *actor.ActorSystem
	Logger *slog.Logger // nil: nobody is told

	ahead time.Duration // by which a test makes the process's clock wrong
}

// wall is what this process's clock shows at a time, and wallNow what it shows now.
func (c *WorkerConfig) wall(t time.Time) time.Time { return clock.At(t).Add(c.ahead) }

func (c *WorkerConfig) wallNow() time.Time { return clock.Now().Add(c.ahead) }

// Work joins a cluster and computes the ranks that it is given, until ctx ends. A worker
// that the coordinator has given up, because it was silent for too long, gives its ranks up
// and joins again.
func Work(ctx context.Context, cfg WorkerConfig) error {
	w, err := newWorker(cfg)
	if err != nil {
		return err
	}
	defer w.at.Close()
	if err = w.join(ctx); err == nil {
		err = w.work(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// newWorker makes a worker that has not joined yet.
func newWorker(cfg WorkerConfig) (*worker, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.LaneStreams == 0 {
		cfg.LaneStreams = 2
	}
	unnamed := cfg.Name == ""
	if unnamed {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("the worker's name: %w; give one (--name)", err)
		}
		cfg.Name = name
	}
	w := &worker{cfg: cfg, unnamed: unnamed, logs: newForwarder()}
	w.call(cfg.Name)
	var err error
	if w.build, err = buildID(); err != nil {
		return nil, err
	}
	w.at, err = locate.New(cfg.Join)
	return w, err
}

// work listens, and lives under one membership after the other, until one ends for good. It has joined.
func (w *worker) work(ctx context.Context) error {
	renewing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.keeper.Run(renewing) }) // ends with renewing
	defer running.Wait()
	defer stop()
	if err := w.open(ctx); err != nil {
		return err
	}
	defer w.close()
	var again retries
	for {
		welcomed, err := w.membership(ctx)
		var far *farError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &far):
			w.awaitCoordinator(ctx, far)
		case errors.Is(err, beat.ErrUnreachable): // which may end, as a firewall's rules change
			w.obstacles.tell(w.log, w.cfg.Join, err)
			select {
			case <-time.After(reachMost):
			case <-ctx.Done():
			}
		case beat.NotYet(err) && again.next(ctx):
			w.log.Warn("the coordinator does not take this worker yet; it tries again", "err", err)
		case !errors.Is(err, beat.ErrRefused) || !welcomed:
			return err
		default:
			again = retries{}
			w.log.Warn("the coordinator has given this worker up; it joins again", "err", err)
		}
	}
}

// call gives the worker a name.
func (w *worker) call(name string) {
	w.cfg.Name = name
	w.log = slog.New(logring.NewHandler(w.cfg.Logger.With("worker", name).Handler(), name, func(r *wire.LogRecord) {
		r.TimeNs += int64(w.cfg.ahead)
		w.logs.add(r)
	}))
}

// worker is a process that computes ranks. What it has lasts from one membership to the next.
type worker struct {
	cfg       WorkerConfig
	unnamed   bool // nobody has given it a name: where its host's is taken, it takes one beside it
	log       *slog.Logger
	logs      *forwarder
	build     string
	at        *locate.Locator // of the coordinator
	root      []byte
	keeper    *pki.Keeper
	devices   []*wire.OfferedDevice // that it offers
	system    *actor.ActorSystem
	shutdown  func() // of a system that is not the caller's; nil: there is none
	transport *transport.TCP
	port      mesh.Port
	probes    prober
	obstacles obstacles
	numbering []byte // incarnation of the coordinator that numbers attempts; the membership's mu
	highest   uint64 // number of the latest attempt that it was given by that one; the membership's mu
}
