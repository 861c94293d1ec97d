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

// WorkerConfig configures a worker.
type WorkerConfig struct {
	Join       string // the coordinator's host:port, or a URL for package discovery
	Token      Token  // join token, used if CertFile has no certificate yet
	CertFile   string // keeps the certificate; "": the worker gets a new one at each start
	Name       string // in the cluster; "": the host's name
	Listen     string // host:port; "": any free port of the interface that reaches the coordinator
	Advertise  string // host:port at which others reach it; "": Listen's
	DataListen string // host:port for tensors on a second network; "": the same as Listen
	Threads    int    // CPU threads; 0: all cores
	// Grace is how long the worker waits after ctx has ended until its runs have written a checkpoint; then it leaves, and
	// its runs continue as if it had failed. 0: 25 s; negative: it leaves at once.
	Grace time.Duration
	// AtOnce ends the wait when it is closed. It may be nil.
	AtOnce      <-chan struct{}
	LaneStreams int // connections for tensors to each process; 0: 2
	// System is the caller's actor system, which must have no address yet; nil: the worker makes its own.
	System *actor.ActorSystem
	// Monitor shows what the worker does while Work runs; nil: none.
	Monitor *Monitor
	Logger  *slog.Logger // nil: no log

	ahead time.Duration                              // how far a test sets the process's clock ahead
	tap   func(out bool, target string, message any) // see mesh.Config.Tap
}

// wall returns what this process's clock shows at a time, and wallNow what it shows now.
func (c *WorkerConfig) wall(t time.Time) time.Time { return clock.At(t).Add(c.ahead) }

func (c *WorkerConfig) wallNow() time.Time { return clock.Now().Add(c.ahead) }

// Work joins a cluster and computes the ranks that the coordinator assigns, until ctx ends. Then the runs that it has
// ranks of write a checkpoint and continue without it (WorkerConfig.Grace), and the worker leaves. If the coordinator
// removes the worker because it was silent for too long, the worker releases its ranks and
// joins again.
func Work(ctx context.Context, cfg WorkerConfig) error {
	w, err := newWorker(cfg)
	if err != nil {
		return err
	}
	defer w.at.Close()
	defer w.awake.Close()
	cfg.Monitor.use(w, nil)
	defer cfg.Monitor.use(nil, nil)
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
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	unnamed := cfg.Name == ""
	if unnamed {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("read the host's name for the worker: %w; give a name (--name)", err)
		}
		cfg.Name = name
	}
	w := &worker{cfg: cfg, unnamed: unnamed, logs: newForwarder(), awake: clock.NewAwake()}
	w.call(cfg.Name)
	var err error
	if w.build, err = buildID(); err == nil {
		w.at, err = locate.New(cfg.Join)
	}
	if err != nil {
		w.awake.Close()
		return nil, err
	}
	return w, nil
}

// work listens, and runs one membership after the other until one ends for good. The worker has its certificate.
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
		case errors.Is(err, beat.ErrUnreachable): // a firewall's rules may change
			w.obstacles.tell(w.log, w.cfg.Join, err)
			select {
			case <-time.After(reachMost):
			case <-ctx.Done():
			}
		case beat.NotYet(err) && again.next(ctx):
			w.log.Warn("the coordinator refuses this worker for now; it keeps trying", "err", err)
		case !errors.Is(err, beat.ErrRefused) || !welcomed:
			return err
		default:
			again = retries{}
			w.log.Warn("the coordinator has removed this worker; it joins again", "err", err)
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

// worker is a process that computes ranks. Its fields last from one membership to the next.
type worker struct {
	cfg       WorkerConfig
	unnamed   bool // it has no name of its own; if the host's name is in use, it appends a number
	log       *slog.Logger
	logs      *forwarder
	build     string
	awake     *clock.Awake    // measures the coordinator's silence
	at        *locate.Locator // of the coordinator
	root      []byte
	keeper    *pki.Keeper
	devices   []*wire.OfferedDevice // the GPUs that it offers
	system    *actor.ActorSystem
	shutdown  func() // of the worker's own actor system; nil: the system is the caller's
	transport *transport.TCP
	port      mesh.Port
	probes    prober
	obstacles obstacles
	numbering []byte // incarnation of the coordinator that numbers the attempts; the membership's mu
	highest   uint64 // number of that coordinator's latest attempt; the membership's mu
}
