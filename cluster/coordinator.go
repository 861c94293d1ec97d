package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/discovery"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
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
	logs      *logRing
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

// workerState is what the coordinator knows of a worker beside its beats.
type workerState struct {
	beat.Member
	attempt *attempt // that it computes ranks of; nil: none
}

// heard is what beats say of a worker that comes or goes.
type heard struct {
	beat.Member
	why error // it is gone
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
	c := &Coordinator{cfg: cfg, dialling: make(chan struct{}, limitDialBacks), logs: newLogRing(), serving: make(chan struct{}, limitRequests), following: make(chan struct{}, limitFollowers), heard: make(map[uuid.UUID]heard), workers: make(map[uuid.UUID]*workerState),
		up: make(chan struct{}), asked: make(map[uint64]question), apart: make(map[[2]uuid.UUID]time.Time), changed: make(chan struct{})}
	c.log = slog.New(&logHandler{next: cfg.Logger.Handler(), process: coordinatorName, sink: func(r *wire.LogRecord) { c.logs.add([]*wire.LogRecord{r}, 0) }})
	c.runs = &runs{c: c}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Coordinator) start(ctx context.Context) (err error) {
	if c.build, err = buildID(); err != nil {
		return err
	}
	if c.id, err = uuid.NewV7(); err != nil {
		return err
	}
	if c.cfg.Announce != "" {
		if c.announcer, err = discovery.OpenAnnouncer(c.cfg.Announce); err != nil {
			return err
		}
	}
	now := clock.Now()
	if c.cfg.Dir == "" {
		c.authority, err = pki.NewAuthority(now)
	} else {
		c.authority, err = pki.OpenAuthority(filepath.Join(c.cfg.Dir, authorityDir), now)
	}
	if err != nil {
		return fmt.Errorf("the cluster's authority: %w", err)
	}
	if c.cfg.Dir != "" {
		if c.runs.journal, err = openJournal(c.cfg.Dir); err != nil {
			return err
		}
		if c.generation, err = c.runs.journal.firstAttempt(); err != nil {
			c.log.Warn("attempts of this coordinator may be numbered as those of the one before it", "err", err)
		}
	}
	for _, n := range c.authority.Names() {
		c.names.expected(n.Name)
	}
	identity := pki.Identity{Name: coordinatorName, Role: pki.Coordinator}
	cert, err := c.authority.Issue(identity, pki.CertificateTTL)
	if err != nil {
		return err
	}
	c.keeper = pki.NewKeeper(cert, func(_ context.Context, csr []byte) ([]byte, error) {
		return c.authority.Sign(csr, identity, pki.CertificateTTL)
	}, c.log)
	if c.system = c.cfg.System; c.system == nil {
		c.system = newSystem(c.log)
		c.shutdown = c.system.Shutdown
	}
	c.beats = beat.NewServer(beat.ServerConfig{Silence: c.cfg.Silence, Reach: c.reach, Admit: c.admit, Joined: c.joined, Gone: c.gone, Status: c.status, Unreachable: c.far, Leaving: c.leaving, Probe: probe, Logger: c.log, Self: func() *wire.Peer { return c.self }})
	ready := make(chan struct{}) // closed when a worker may join
	var port mesh.Port
	c.transport, err = transport.Listen(transport.Config{
		System: c.system, Listen: c.cfg.Listen, Advertise: c.cfg.Advertise, DataListen: c.cfg.DataListen,
		Server: pki.ServerTLS(c.authority.Root(), c.keeper.Get),
		Client: func(address string) *tls.Config {
			return pki.ClientTLSTo(port.NameAt(address), c.authority.Root(), c.keeper.Get, pki.Worker)
		},
		Allow: allow, Identify: c.identify, Logger: c.log,
		Handlers: transport.Handlers{Envelope: port.Envelope, Returned: port.Returned, Streams: map[string]func(net.Conn, transport.Peer){
			mesh.LaneProtocol: port.Accept, probeProtocol: new(prober).serve, transport.ProtocolJoin: c.serveJoin, renewProtocol: c.serveRenew, apiProtocol: c.serveAPI, logProtocol: c.serveLog,
			beatProtocol: func(conn net.Conn, p transport.Peer) {
				select {
				case <-ready:
					c.beats.Serve(conn, p.Name)
				case <-ctx.Done():
					_ = conn.Close()
				}
			},
		}},
	})
	if err != nil {
		return err
	}
	c.self = &wire.Peer{Name: coordinatorName, Incarnation: c.id[:], Address: c.transport.Address(), DataAddress: c.transport.DataAddress()}
	port.Resolve(c.system)
	c.mesh = mesh.New(mesh.Config{Self: c.id, Name: coordinatorName, System: c.system, Secure: true, Streams: c.cfg.LaneStreams, Control: c.control, Logger: c.log,
		Broken: func(id uuid.UUID, err error) { c.beats.Expel(id, err) }}, c.transport)
	port.Use(c.mesh)
	if c.members, err = members.New(c.system, c.memberships); err != nil {
		return err
	}
	close(ready)
	c.running.Add(2)
	go func() { // ends with ctx
		defer c.running.Done()
		c.keeper.Run(ctx)
	}()
	go func() { // ends with ctx
		defer c.running.Done()
		c.watchRevoked(ctx)
	}()
	if c.runs.journal != nil {
		if err := c.runs.journal.announce(c.Address()); err != nil {
			return fmt.Errorf("the coordinator's folder: %w", err)
		}
	}
	if c.announcer != nil {
		c.running.Add(1)
		go func() { // ends with ctx
			defer c.running.Done()
			c.announce(ctx, c.announcer)
		}()
	}
	c.runs.takeUp()
	close(c.up)
	return nil
}

// newSystem makes an actor system of the package's own.
func newSystem(log *slog.Logger) *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Nanosecond)) // its goroutine sleeps that long
}

func identify(s tls.ConnectionState) (name, role string, err error) {
	id, err := pki.IdentityOf(s)
	return id.Name, string(id.Role), err
}

// probe finds out whether anybody listens at an address.
func probe(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Address is what workers join by.
func (c *Coordinator) Address() string { return c.transport.Address() }

// NewToken makes a token for a role that expires.
func (c *Coordinator) NewToken(role pki.Role, ttl time.Duration) (Token, error) {
	return c.authority.NewToken(role, ttl, clock.Now())
}

// Hosts are the cluster's workers, for the troupe.Options of one run.
func (c *Coordinator) Hosts() plan.Hosts { return &hosts{Coordinator: c} }

// admit takes a process as a member, if it may be one.
func (c *Coordinator) admit(h *wire.Hello, _ string) error {
	if err := c.refuses(h); err != nil {
		return err
	}
	for _, m := range c.beats.Members() { // which are not heard, as refuses has found
		switch {
		case m.Name == h.GetWorker().GetName():
			c.beats.Expel(m.ID, fmt.Errorf("%w: it was started again", beat.ErrDead))
		case sharesAddress(h.GetWorker(), m):
			c.beats.Expel(m.ID, fmt.Errorf("%w: worker %q has its address", beat.ErrDead, h.GetWorker().GetName()))
		}
	}
	c.names.came(h.GetWorker().GetName())
	return c.mesh.SetPeer(h.GetWorker())
}

// refuses says why a process may not become a member: its program is another one, or it has the name or the address
// of another process, so that what is for one of the two would be sent to the other.
func (c *Coordinator) refuses(h *wire.Hello) error {
	registered := sameRegistered(h.GetOffer())
	if h.GetBuild() != c.build {
		build := fmt.Errorf("its build is %.200q, the coordinator's %q: the bits of what is trained depend on it, so use the same program everywhere", h.GetBuild(), c.build)
		if registered != nil { // which says more
			return fmt.Errorf("%w; %w", registered, build)
		}
		return build
	}
	if registered != nil {
		return fmt.Errorf("%w; a program must register the same whenever it is started", registered)
	}
	w := h.GetWorker()
	if sharesAddress(w, beat.Member{Address: c.self.GetAddress(), DataAddress: c.self.GetDataAddress()}) {
		return fmt.Errorf("its address %s is the coordinator's own", w.GetAddress())
	}
	for _, m := range c.beats.Members() {
		heard := time.Since(m.Heard).Seconds()
		switch {
		case !m.Connected:
		case m.Name == w.GetName(): // with the same key, which two processes have then
			return fmt.Errorf("%w: %q is the name of a worker at %s, which has the same key and was heard %.1f s ago; each worker needs a certificate of its own: was --cert-file copied?",
				beat.ErrLater, m.Name, m.Address, heard)
		case sharesAddress(w, m):
			return fmt.Errorf("its address %s is that of worker %q, which was heard %.1f s ago; listen at another one (--listen, --advertise)", w.GetAddress(), m.Name, heard)
		}
	}
	return nil
}

// sharesAddress reports whether a process has an address of a member's.
func sharesAddress(w *wire.Peer, m beat.Member) bool {
	own := []string{w.GetAddress(), w.GetDataAddress()}
	taken := func(address string) bool { return address != "" && slices.Contains(own, address) }
	return taken(m.Address) || taken(m.DataAddress)
}

// joined and gone put what beats say on the list of members.

func (c *Coordinator) joined(m beat.Member) {
	c.mu.Lock()
	c.heard[m.ID] = heard{Member: m}
	c.mu.Unlock()
	if err := c.members.Add(m.ID, m.Address); err != nil {
		c.log.Error("a worker is no member", "worker", m.Name, "err", err)
	}
}

func (c *Coordinator) gone(m beat.Member, why error) {
	c.mu.Lock()
	c.heard[m.ID] = heard{m, why}
	c.mu.Unlock()
	c.members.Remove(m.ID)
}

// leaving hears that a worker is told to end. Where the coordinator is told so too, its runs write their last checkpoints
// with the worker; else it counts as lost soon.
func (c *Coordinator) leaving(id uuid.UUID) {
	time.AfterFunc(leaveGrace, func() { // ends by itself
		if !c.runs.ending() {
			c.beats.Expel(id, beat.ErrGoodbye)
		}
	})
}

// memberships follows the list of members.
func (c *Coordinator) memberships(change members.Change) {
	for _, id := range change.Joined {
		c.enter(id)
	}
	for _, id := range change.Left {
		c.leave(id)
	}
}

func (c *Coordinator) enter(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.heard[id].Member
	delete(c.heard, id)
	c.workers[id] = &workerState{Member: m}
	c.tell()
	c.unreachable.forget(m.Name)
	c.log.Info("worker joined", "worker", m.Name, "address", m.Address, "cores", m.Offer.GetCores(), "kernels", m.Offer.GetKernels(), "devices", len(m.Offer.GetDevices()))
}

// tell wakes whoever waits for workers. mu is held.
func (c *Coordinator) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Coordinator) leave(id uuid.UUID) {
	c.mu.Lock()
	w, m, why := c.workers[id], c.heard[id].Member, c.heard[id].why
	delete(c.heard, id)
	delete(c.workers, id)
	maps.DeleteFunc(c.apart, func(pair [2]uuid.UUID, until time.Time) bool {
		return pair[0] == id || pair[1] == id || time.Now().After(until)
	})
	c.tell()
	c.mu.Unlock()
	c.mesh.Forget(id)
	c.log.Warn("worker is gone", "worker", m.Name, "address", m.Address, "heard_s", time.Since(m.Heard).Seconds(), "why", why)
	if w != nil && w.attempt != nil {
		w.attempt.lost(m, why)
	}
}

// Members lists the workers, in the order in which they joined.
func (c *Coordinator) Members() []Member {
	var all []Member
	for _, m := range c.beats.Members() {
		w := Member{Name: m.Name, Address: m.Address, Cores: int(m.Offer.GetCores()), MemoryBytes: m.Offer.GetMemoryBytes(), Kernels: m.Offer.GetKernels(), Devices: unpackDevices(m.Offer.GetDevices()),
			Joined: m.Joined, Heard: m.Heard, ClockAhead: m.Offset, RoundTrip: m.RoundTrip}
		c.mu.Lock()
		if s := c.workers[m.ID]; s != nil && s.attempt != nil {
			w.Run, w.Ranks = s.attempt.run, slices.Clone(s.attempt.ranksOf(m.ID))
		}
		c.mu.Unlock()
		all = append(all, w)
	}
	return all
}

// Member is a worker, as it was last heard of.
type Member struct {
	Name, Address string
	Cores         int
	MemoryBytes   int64
	Kernels       string
	Devices       []OfferedDevice // beside the CPU
	Joined, Heard time.Time
	ClockAhead    time.Duration
	RoundTrip     time.Duration
	Run           uuid.UUID // that it computes ranks of; Nil: none
	Ranks         []int
}

// Wait waits until there are that many workers.
func (c *Coordinator) Wait(ctx context.Context, workers int) error {
	for {
		c.mu.Lock()
		n, changed := len(c.workers), c.changed
		c.mu.Unlock()
		if n >= workers {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d have joined: %w", plan.ErrNoRoom, n, workers, context.Cause(ctx))
		}
	}
}

// unreachableSilences is for how many times the silence something may wait to be sent to a
// process that is alive. TCP waits twice as long each time before it sends again what a
// broken network has lost: behind a break shorter than the silence it goes on within two.
const unreachableSilences = 3

// control takes a worker's message.
func (c *Coordinator) control(from uuid.UUID, m *wire.Control) {
	if c.replied(from, m) {
		return
	}
	if a := c.attemptOf(from); a != nil {
		a.answer(from, m)
	}
}

// attemptOf is the attempt that a worker has a part in; nil: none.
func (c *Coordinator) attemptOf(worker uuid.UUID) *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[worker]; w != nil {
		return w.attempt
	}
	return nil
}

// status takes what a worker's actors are doing.
func (c *Coordinator) status(m beat.Member, s *wire.StatusReply) {
	if a := c.attemptOf(m.ID); a != nil {
		a.observe(m, s)
	}
}

// far takes which processes a worker can't reach, and looks whether it is reached: also one that has no ranks yet, which
// may be about to get them, or is asked for something else.
func (c *Coordinator) far(m beat.Member, far []*wire.Unreachable) {
	a := c.attemptOf(m.ID)
	quiet := c.mesh.Quiet(m.ID)
	if quiet < c.cfg.Silence {
		quiet = 0
	}
	if a != nil {
		a.unreachable(m, far)
		if quiet == 0 && len(far) == 0 {
			a.well(m.Name)
		}
	}
	why := fmt.Errorf("messages to it are not acknowledged for %.1f s", quiet.Seconds())
	switch {
	case quiet == 0:
	case quiet < unreachableSilences*c.cfg.Silence:
		if a != nil {
			a.stalled(m.Name, quiet, why)
		}
	default:
		c.beats.Expel(m.ID, why)
	}
}

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

// errClosed: the coordinator is closed.
var errClosed = errors.New("the coordinator has ended")
