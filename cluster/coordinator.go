package cluster

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/discovery"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/logring"
	"github.com/troupe-ml/troupe/cluster/internal/members"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// coordinatorName is the name in the coordinator's certificate.
const coordinatorName = "coordinator"

// beatProtocol is the name of the streams of beats.
const beatProtocol = "beat"

// Token lets a process join a cluster. It is a secret: keep it in a file, and never pass it as an
// argument.
type Token = pki.Token

// Roles of the processes that join.
const (
	RoleWorker   = pki.Worker
	RoleOperator = pki.Operator
	RoleViewer   = pki.Viewer
)

// Config configures a Coordinator.
type Config struct {
	Listen      string        // host:port; port 0: any free port
	Advertise   string        // host:port at which others reach it; "": Listen's
	Announce    string        // URL of a service for its address, such as "etcd://host:2379" (package discovery); "": none
	DataListen  string        // host:port for tensors on a second network; "": the same as Listen
	Dir         string        // folder for its authority, tokens and journal; "": they are kept in memory
	Silence     time.Duration // a worker that is silent for longer has failed; 0: 3 s
	Lease       time.Duration // how long workers keep their ranks without the coordinator; 0: 30 s
	LaneStreams int           // connections for tensors to each process; 0: 2
	// RemoteTokens lets operators create, list and revoke tokens over the network.
	RemoteTokens bool
	// Submissions limits what submitted configs may name.
	Submissions Submissions
	// System is the caller's actor system, which must have no address yet; nil: the coordinator makes its own.
	System *actor.ActorSystem
	Logger *slog.Logger // nil: no log
	// Began is called when a run begins or resumes, with the run's id and config. Calls come one at a
	// time, and must not block. It may be nil.
	Began func(id string, cfg *config.Config, r *troupe.Run)

	atPoint func(string)  // a test's hook for the points of a run's start; may be nil
	steady  time.Duration // see rebalanceAfter; 0: that
	// how long a step may take before the ranks of a drained worker move, in a test; 0: no limit
	handOver time.Duration
}

// at calls the test's hook at a point of a run's start.
func (c *Config) at(point string) {
	if c.atPoint != nil {
		c.atPoint(point)
	}
}

// Coordinator is the process that owns a cluster's authority, its list of workers and its runs.
type Coordinator struct {
	cfg       Config
	log       *slog.Logger
	announcer discovery.Announcer // nil: none
	awake     *clock.Awake        // measures silences and waits
	id        uuid.UUID
	self      *wire.Peer
	build     string
	authority *pki.Authority
	keeper    *pki.Keeper
	system    *actor.ActorSystem
	shutdown  func()
	transport *transport.TCP
	mesh      *mesh.Mesh
	beats     *beat.Server
	members   *members.List
	cancel    context.CancelFunc
	running   sync.WaitGroup
	runs      *runs
	logs      *logring.Ring
	serving   chan struct{} // semaphore for requests with one reply
	following chan struct{} // semaphore for requests that follow
	up        chan struct{} // closed when the journal's runs are listed

	mu         sync.Mutex
	heard      map[uuid.UUID]heard        // workers that join or leave, until the list of members has them
	workers    map[uuid.UUID]*workerState // the members
	changed    chan struct{}              // closed and replaced when a worker joins, leaves or becomes free
	generation uint64                     // number of the last attempt
	requests   uint64
	asked      map[uint64]question        // pending requests to workers, by number
	joins      uint64                     // workers that have joined
	left       uint64                     // workers that have left after a goodbye
	failed     uint64                     // workers that were removed for another reason
	apart      map[[2]uuid.UUID]time.Time // pairs of workers that could not reach each other, and until when they are kept apart
	waiting    int                        // runs outside the queue that choose their workers; they come before the queue
	closed     bool

	names       arrivals
	unreachable unreachables
	dialling    chan struct{} // semaphore for workers that are dialed back
}

// NewCoordinator starts a coordinator. It listens when NewCoordinator returns, and resumes the runs in
// cfg.Dir's journal.
func NewCoordinator(cfg Config) (*Coordinator, error) {
	if cfg.Silence == 0 {
		cfg.Silence = 3 * time.Second
	}
	if cfg.Lease == 0 {
		cfg.Lease = 30 * time.Second
	}
	if cfg.LaneStreams == 0 {
		cfg.LaneStreams = 2
	}
	if cfg.steady == 0 {
		cfg.steady = rebalanceAfter
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{cfg: cfg, awake: clock.NewAwake(), dialling: make(chan struct{}, limitDialBacks), logs: logring.New(),
		serving: make(chan struct{}, limitRequests), following: make(chan struct{}, limitFollowers), heard: make(map[uuid.UUID]heard),
		workers: make(map[uuid.UUID]*workerState),
		up:      make(chan struct{}), asked: make(map[uint64]question), apart: make(map[[2]uuid.UUID]time.Time), changed: make(chan struct{})}
	c.log = slog.New(logring.NewHandler(cfg.Logger.Handler(), coordinatorName,
		func(r *wire.LogRecord) { c.logs.Add([]*wire.LogRecord{r}, 0) }))
	c.runs = &runs{c: c}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Address returns the host:port at which workers join.
func (c *Coordinator) Address() string { return c.transport.Address() }

// NewToken creates a token for a role. It expires after ttl.
func (c *Coordinator) NewToken(role pki.Role, ttl time.Duration) (Token, error) {
	return c.authority.NewToken(role, ttl, clock.Now())
}

// Accepts reports whether a token of this cluster has a role, and is valid for at least that long.
func (c *Coordinator) Accepts(t Token, role Role, within time.Duration) bool {
	return t.Role == role && c.authority.Accepted(t, clock.Now().Add(within))
}

// Hosts returns the cluster's workers, for the troupe.Options of one run.
func (c *Coordinator) Hosts() plan.Hosts { return &hosts{Coordinator: c} }

// Close stops the coordinator at once. Submitted runs stop without a checkpoint (see Shutdown). The
// caller's own runs, which use Hosts, must have ended.
func (c *Coordinator) Close() {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	c.runs.stop(now)
	if c.beats != nil {
		c.beats.Close()
	}
	if c.members != nil {
		c.members.Close()
	}
	if c.transport != nil {
		c.transport.Close()
	}
	if c.mesh != nil {
		c.mesh.Close()
	}
	c.cancel()
	if c.shutdown != nil {
		c.shutdown()
	}
	c.running.Wait()
	c.awake.Close()
	if c.announcer != nil {
		if err := c.announcer.Close(); err != nil {
			c.log.Error("can't close the announcer of the coordinator's address", "err", err)
		}
	}
	if err := c.runs.close(); err != nil {
		c.log.Error("can't close the coordinator's folder", "err", err)
	}
}

// Shutdown stops the coordinator in order. Every run writes a checkpoint, unless ctx ends first, and
// resumes when a coordinator starts with the same folder.
func (c *Coordinator) Shutdown(ctx context.Context) {
	c.runs.stop(ctx)
	c.Close()
}
