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

// Token lets a process join a cluster. It is a secret: it belongs into a file, never into
// arguments.
type Token = pki.Token

// Roles of those who join.
const (
	RoleWorker   = pki.Worker
	RoleOperator = pki.Operator
	RoleViewer   = pki.Viewer
)

// Config is what a Coordinator needs.
type Config struct {
	Listen      string // host:port; port 0: any
	Advertise   string // host:port that others reach it by, where that is another
	Announce    string // where its address is made known, such as "etcd://host:2379" (package discovery); "": nowhere
	DataListen  string // host:port of a second network for tensors; "": the same
	Dir         string // where authority and tokens are kept; "": they end with the process
	Silence     time.Duration
	Lease       time.Duration
	LaneStreams int // connections that carry tensors to a process; 0: 2
	// RemoteTokens lets operators make, list and revoke tokens over the network.
	RemoteTokens bool
	// Submissions limits what operators' configurations may ask for.
	Submissions Submissions
	// System, if there is one, is the caller's own: it must have no address yet.
	System *actor.ActorSystem
	Logger *slog.Logger // nil: nobody is told
	// Began is told of each run that begins or goes on, with its id and its configuration, before
	// the next one; it must not wait. nil: nobody is.
	Began func(id string, cfg *config.Config, r *troupe.Run)

	atPoint func(string) // a test's, called at the points of a run's beginning; nil: nobody's
}

// at is called at a point of a run's beginning.
func (c *Config) at(point string) {
	if c.atPoint != nil {
		c.atPoint(point)
	}
}

// Coordinator is the process that has a cluster's authority, its members and its runs.
type Coordinator struct {
	cfg       Config
	log       *slog.Logger
	announcer discovery.Announcer // nil: there is none
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
	serving   chan struct{} // a place for each operator's request that is answered
	following chan struct{} // and of those that go on and on
	up        chan struct{} // closed when the journal's runs are known

	mu         sync.Mutex
	heard      map[uuid.UUID]heard        // of workers that come or go, until the list of members says so
	workers    map[uuid.UUID]*workerState // that are members
	changed    chan struct{}              // closed and replaced when a worker comes, goes or is free
	generation uint64                     // number of the last attempt
	requests   uint64
	asked      map[uint64]question        // who waits for a reply, by the request's number
	apart      map[[2]uuid.UUID]time.Time // workers that could not reach each other, and until when they are kept apart
	closed     bool

	names       arrivals
	unreachable unreachables
	dialling    chan struct{} // a place for each worker that is dialled back
}

// NewCoordinator begins to listen.
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
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{cfg: cfg, dialling: make(chan struct{}, limitDialBacks), logs: logring.New(),
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

// Address is what workers join by.
func (c *Coordinator) Address() string { return c.transport.Address() }

// NewToken makes a token for a role that expires.
func (c *Coordinator) NewToken(role pki.Role, ttl time.Duration) (Token, error) {
	return c.authority.NewToken(role, ttl, clock.Now())
}

// Hosts are the cluster's workers, for the troupe.Options of one run.
func (c *Coordinator) Hosts() plan.Hosts { return &hosts{Coordinator: c} }

// Close ends the cluster's coordinator. Runs of its own are ended without a checkpoint (see
// Shutdown); those of others must have ended.
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
	if c.announcer != nil {
		if err := c.announcer.Close(); err != nil {
			c.log.Error("closing what announces the coordinator", "err", err)
		}
	}
	if err := c.runs.close(); err != nil {
		c.log.Error("closing the coordinator's folder", "err", err)
	}
}

// Shutdown ends the coordinator in order: every run writes a checkpoint, unless ctx ends
// first, and resumes when a coordinator with the same folder is started.
func (c *Coordinator) Shutdown(ctx context.Context) {
	c.runs.stop(ctx)
	c.Close()
}
