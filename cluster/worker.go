package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
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
func (c *WorkerConfig) wallNow() time.Time         { return clock.Now().Add(c.ahead) }

// Work joins a cluster and computes the ranks that it is given, until ctx ends. A worker
// that the coordinator has given up, because it was silent for too long, gives its ranks up
// and joins again.
func Work(ctx context.Context, cfg WorkerConfig) error {
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
			return fmt.Errorf("the worker's name: %w; give one (--name)", err)
		}
		cfg.Name = name
	}
	w := &worker{cfg: cfg, unnamed: unnamed, logs: newForwarder()}
	w.call(cfg.Name)
	var err error
	if w.build, err = buildID(); err != nil {
		return err
	}
	if w.at, err = newLocator(cfg.Join); err != nil {
		return err
	}
	defer w.at.close()
	if err := w.join(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	renewing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Add(1)
	go func() { // ends with renewing
		defer running.Done()
		w.keeper.Run(renewing)
	}()
	defer running.Wait()
	defer stop()
	if err := w.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
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
	w.log = slog.New(&logHandler{next: w.cfg.Logger.With("worker", name).Handler(), process: name, sink: func(r *wire.LogRecord) {
		r.TimeNs += int64(w.cfg.ahead)
		w.logs.add(r)
	}})
}

// worker is a process that computes ranks. What it has lasts from one membership to the next.
type worker struct {
	cfg       WorkerConfig
	unnamed   bool // nobody has given it a name: where its host's is taken, it takes one beside it
	log       *slog.Logger
	logs      *forwarder
	build     string
	at        *locator // of the coordinator
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

// membership is the life of a worker under one incarnation. What is of one never reaches another:
// messages name the incarnation that they are for and from, and attempts are carried by the
// membership that they were assigned to.
type membership struct {
	*worker
	id     uuid.UUID
	mesh   *mesh.Mesh
	client *beat.Client
	leased context.Context // ends with the membership
	stop   func()          // ends it

	mu          sync.Mutex
	far         *farError // why it has ended by itself; nil: it has not
	welcomed    bool
	coordinator *wire.Peer
	silence     time.Duration // after which a process is lost
	parts       map[uuid.UUID]*part
	gaveUp      map[uuid.UUID]string // why, by attempt, until the coordinator releases it
	leaving     bool                 // nothing begins any more
	running     sync.WaitGroup       // of what assigns and releases
}

// join gets the worker's certificate.
func (w *worker) join(ctx context.Context) error {
	var cert tls.Certificate
	var err error
	if w.cfg.CertFile != "" {
		cert, w.root, err = pki.ReadCertificateFile(w.cfg.CertFile)
	}
	if err == nil && w.cfg.CertFile != "" {
		if err := checkRole("certificate in "+w.cfg.CertFile, pki.RoleIn(cert), RoleWorker); err != nil {
			return err
		}
	}
	if err == nil && w.cfg.CertFile != "" && w.unnamed {
		if name := pki.NameIn(cert); name != "" { // which may have a number
			w.call(name)
		}
	}
	if err == nil && w.cfg.CertFile != "" && w.cfg.Token.ID != "" {
		if why := outlived(cert, w.root, w.cfg.Token, clock.Now()); why != "" {
			w.log.Warn("the certificate is of no use any more; the worker joins again", "file", w.cfg.CertFile, "why", why)
			err = os.ErrNotExist
		}
	}
	if w.cfg.CertFile == "" || errors.Is(err, os.ErrNotExist) {
		if w.cfg.Token.ID == "" {
			return fmt.Errorf("a token is needed to join (--token-file): %w", cmp.Or(err, errors.New("there is no certificate")))
		}
		if err := checkRole("token", w.cfg.Token.Role, RoleWorker); err != nil {
			return err
		}
		cert, err = w.joinAs(ctx)
		if err != nil {
			return fmt.Errorf("joining the cluster at %s: %w", w.cfg.Join, err)
		}
		if w.cfg.CertFile != "" {
			err = pki.WriteCertificateFile(w.cfg.CertFile, cert)
		}
	}
	if err != nil {
		return err
	}
	w.keeper = pki.NewKeeper(cert, w.renew, w.log)
	if w.cfg.CertFile != "" {
		w.keeper.OnRenewed(func(cert tls.Certificate) error { return pki.WriteCertificateFile(w.cfg.CertFile, cert) })
	}
	return nil
}

// open begins to listen. A process does it once: protoactor's remote sets gRPC's logger for all,
// while the last goroutines of one before may read it.
func (w *worker) open(ctx context.Context) error {
	listen, err := w.listen(ctx)
	if err != nil {
		return err
	}
	if w.system = w.cfg.System; w.system == nil {
		w.system = newSystem(w.log)
		w.shutdown = w.system.Shutdown
	}
	w.transport, err = transport.Listen(transport.Config{
		System: w.system, Listen: listen, Advertise: w.cfg.Advertise, DataListen: w.cfg.DataListen,
		Server: pki.ServerTLS(w.root, w.keeper.Get),
		Client: func(address string) *tls.Config {
			return pki.ClientTLSTo(w.port.NameAt(address), w.root, w.keeper.Get)
		},
		Allow: allow, Identify: identify, Logger: w.log,
		Handlers: transport.Handlers{Envelope: w.port.Envelope, Returned: w.port.Returned, Streams: map[string]func(net.Conn, transport.Peer){mesh.LaneProtocol: w.port.Accept, probeProtocol: w.probes.serve}},
	})
	if err != nil {
		w.close()
		return err
	}
	w.port.Resolve(w.system)
	return nil
}

// close ends what open began.
func (w *worker) close() {
	if w.transport != nil {
		w.transport.Close()
	}
	if w.shutdown != nil {
		w.shutdown()
	}
}

// membership lives under a new incarnation until the coordinator refuses it, or ctx ends. It
// reports whether the coordinator had welcomed it.
func (w *worker) membership(ctx context.Context) (welcomed bool, err error) {
	m := &membership{worker: w, parts: make(map[uuid.UUID]*part), gaveUp: make(map[uuid.UUID]string)}
	if m.id, err = uuid.NewV7(); err != nil {
		return false, err
	}
	offer, err := w.offer()
	if err != nil {
		return false, err
	}
	m.mesh = mesh.New(mesh.Config{Self: m.id, Name: w.cfg.Name, System: w.system, Secure: true, Streams: w.cfg.LaneStreams, Control: m.control, Logger: w.log,
		Broken: func(id uuid.UUID, err error) {
			w.log.Error("a process can't be sent to any more", "process", id, "err", err)
			go m.giveUp("something could not be sent") // whoever sends may hold what giving up takes
		}}, w.transport)
	w.port.Use(m.mesh)
	m.client = beat.NewClient(beat.ClientConfig{
		Dial:     func(ctx context.Context) (net.Conn, error) { return w.dialCoordinator(ctx, beatProtocol) },
		Hello:    &wire.Hello{Worker: &wire.Peer{Name: w.cfg.Name, Incarnation: m.id[:], Address: w.transport.Address(), DataAddress: w.transport.DataAddress()}, Build: w.build, Offer: offer},
		Welcomed: m.welcome, Status: m.status, Unreachable: m.unreachable, Final: final, Logger: w.log,
		Failed: func(err error) { w.obstacles.tell(w.log, w.cfg.Join, err) },
		Wall:   w.cfg.wallNow, Leaving: ctx.Done(),
	})
	leased, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.leased, m.stop = leased, stop
	m.running.Add(3)
	go func() { // ends with leased
		defer m.running.Done()
		select {
		case <-ctx.Done():
			m.drain(leased)
			stop()
		case <-leased.Done():
		}
	}()
	go func() { // ends with leased
		defer m.running.Done()
		m.minds(leased)
	}()
	go func() { // ends with leased
		defer m.running.Done()
		w.logs.run(leased, func(ctx context.Context) (net.Conn, error) { return w.dialCoordinator(ctx, logProtocol) })
	}()
	err = m.client.Run(leased)
	stop()
	m.mu.Lock()
	m.leaving = true
	if welcomed = m.welcomed; m.far != nil {
		err = m.far
	}
	m.mu.Unlock()
	m.giveUp("the membership has ended")
	m.running.Wait()
	w.port.Use(nil)
	m.mesh.Close()
	return welcomed, err
}

// listen is the address to listen at: where none is given, that of the interface by which
// the coordinator is reached.
func (w *worker) listen(ctx context.Context) (string, error) {
	if w.cfg.Listen != "" {
		return w.cfg.Listen, nil
	}
	var conn net.Conn
	err := w.reach(ctx, func() (err error) {
		if w.at.finder != nil { // which of the addresses is the coordinator's, only it can show
			conn, err = w.dialCoordinator(ctx, logProtocol)
			return err
		}
		conn, err = new(net.Dialer).DialContext(ctx, "udp", w.cfg.Join) // sends nothing
		return err
	})
	if err != nil {
		return "", fmt.Errorf("how the coordinator is reached: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return net.JoinHostPort(host, "0"), err
}

// cores are how many threads compute here.
func (w *worker) cores() int {
	if w.cfg.Threads > 0 {
		return w.cfg.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// offer says what this worker has.
func (w *worker) offer() (*wire.Offer, error) {
	w.devices = w.offeredDevices()
	d, err := device.OpenKind(device.Options{Kind: device.CPU, Threads: w.cfg.Threads})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return &wire.Offer{Cores: int32(w.cores()), MemoryBytes: sysinfo.MemoryBytes(), Kernels: d.Path(), Devices: w.devices, Registered: registry.Names()}, nil //nolint:gosec // a number of cores
}

// welcome takes the coordinator's word that this worker is a member. Another coordinator
// than before knows nothing of the attempts here.
func (w *membership) welcome(m *wire.Welcome) {
	w.mu.Lock()
	was := w.coordinator
	w.coordinator, w.welcomed = m.GetCoordinator(), true
	if next := m.GetCoordinator().GetIncarnation(); string(next) != string(w.numbering) {
		w.numbering, w.highest = next, 0 // each coordinator numbers its own attempts
	}
	for _, p := range w.parts { // the last beats may not have come
		clear(p.told)
	}
	w.silence = time.Duration(m.GetSilenceS() * float64(time.Second))
	w.mu.Unlock()
	id, _ := uuid.FromBytes(m.GetCoordinator().GetIncarnation()) // which SetPeer looks at
	if was != nil && string(was.GetIncarnation()) != string(id[:]) {
		if old, err := uuid.FromBytes(was.GetIncarnation()); err == nil {
			w.mesh.Forget(old)
		}
		w.giveUp("the coordinator was started again") // before an order of the new one can come
	}
	if err := w.mesh.SetPeer(m.GetCoordinator()); err != nil {
		w.log.Error("the coordinator's greeting", "err", err)
		return
	}
	w.mesh.Reconnected()
	w.obstacles.gone()
	w.log.Info("joined", "coordinator", m.GetCoordinator().GetAddress(), "address", w.transport.Address())
	if was == nil || string(was.GetIncarnation()) != string(id[:]) {
		w.running.Add(1)
		go func() { // ends with leased, or within beat.ReachTime
			defer w.running.Done()
			w.dialBack(m.GetCoordinator())
		}()
	}
}

// dialBack ends the membership where the worker can't reach the coordinator at the addresses that this names: messages go there.
func (w *membership) dialBack(coordinator *wire.Peer) {
	far := w.reachCoordinator(w.leased, coordinator)
	if far == nil || w.leased.Err() != nil {
		return
	}
	w.mu.Lock()
	w.far = far
	w.mu.Unlock()
	w.stop()
}

// drain waits until the coordinator has released this worker's ranks, for drainTime at most, or until it is not
// heard any more: where a whole cluster is told to end, its coordinator has runs write a last checkpoint, for which it
// needs the workers. A coordinator that does not end itself takes the worker for lost after leaveGrace.
func (w *membership) drain(ctx context.Context) {
	end := time.NewTimer(drainTime)
	defer end.Stop()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for said := false; ; said = true {
		w.mu.Lock()
		busy := len(w.parts) > 0
		w.mu.Unlock()
		if !busy || w.client.Quiet() > drainQuiet {
			return
		}
		if !said {
			w.log.Info("told to end; waits for the coordinator to release its ranks", "most_s", drainTime.Seconds())
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// minds gives the ranks up when the coordinator was silent for longer than their lease.
func (w *membership) minds(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		quiet := w.client.Quiet()
		w.mu.Lock()
		for _, p := range w.parts {
			if quiet >= p.lease {
				p.giveUp(fmt.Sprintf("it heard nothing of the coordinator for %.1f s, and cluster.lease_s is %g", quiet.Seconds(), p.lease.Seconds()))
			}
		}
		w.mu.Unlock()
	}
}

// giveUp ends every attempt's stages here.
func (w *membership) giveUp(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		p.giveUp(why)
	}
}
