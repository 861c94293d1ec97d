package cluster

import (
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
	"github.com/troupe-ml/troupe/internal/device"
	"github.com/troupe-ml/troupe/internal/registry"
	"github.com/troupe-ml/troupe/internal/sysinfo"
	"github.com/troupe-ml/troupe/internal/wire"
)

// WorkerConfig is what a worker needs.
type WorkerConfig struct {
	Join        string // the coordinator's host:port
	Token       Token  // by which it joins, where CertFile has no certificate yet
	CertFile    string // where its certificate is kept; "": it joins again with each start
	Name        string // in the cluster; "": the host's
	Listen      string // host:port; "": any port of the address by which it reaches the coordinator
	Advertise   string // host:port that others reach it by, where that is another
	DataListen  string // host:port of a second network for tensors; "": the same
	Threads     int    // of the CPU; 0: all cores
	LaneStreams int    // connections that carry tensors to a process; 0: 2
	// System makes an actor system of the caller's for each membership: it must have no
	// address yet; nil: the worker makes one.
	System func() *actor.ActorSystem
	Logger *slog.Logger // nil: nobody is told
}

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
	if cfg.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("the worker's name: %w; give one (--name)", err)
		}
		cfg.Name = name
	}
	w := &worker{cfg: cfg, logs: newForwarder()}
	w.log = slog.New(&logHandler{next: cfg.Logger.With("worker", cfg.Name).Handler(), process: cfg.Name, sink: w.logs.add})
	var err error
	if w.build, err = buildID(); err != nil {
		return err
	}
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
	for {
		err := w.membership(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, beat.ErrRefused) || !w.welcomed {
			return err
		}
		w.log.Warn("the coordinator has given this worker up; it joins again", "err", err)
		w.welcomed = false
	}
}

// worker is a process that computes ranks.
type worker struct {
	cfg      WorkerConfig
	log      *slog.Logger
	logs     *forwarder
	build    string
	root     []byte
	keeper   *pki.Keeper
	devices  []*wire.OfferedDevice // that it offers
	welcomed bool                  // in this membership

	// Of a membership:
	id        uuid.UUID
	system    *actor.ActorSystem
	transport *transport.TCP
	mesh      *mesh.Mesh
	client    *beat.Client

	mu          sync.Mutex
	coordinator *wire.Peer
	silence     time.Duration // after which a process is lost
	highest     uint64        // generation of the latest attempt that it was given
	parts       map[uuid.UUID]*part
	leaving     bool           // nothing begins any more
	running     sync.WaitGroup // of what assigns and releases
}

// join gets the worker's certificate.
func (w *worker) join(ctx context.Context) error {
	var cert tls.Certificate
	var err error
	if w.cfg.CertFile != "" {
		cert, w.root, err = pki.ReadCertificateFile(w.cfg.CertFile)
	}
	if err == nil && w.cfg.CertFile != "" && w.cfg.Token.ID != "" {
		if why := outlived(cert, w.root, w.cfg.Token, time.Now()); why != "" {
			w.log.Warn("the certificate is of no use any more; the worker joins again", "file", w.cfg.CertFile, "why", why)
			err = os.ErrNotExist
		}
	}
	if w.cfg.CertFile == "" || errors.Is(err, os.ErrNotExist) {
		err = w.reach(ctx, func() (err error) {
			cert, w.root, err = join(ctx, w.cfg.Join, w.cfg.Token, w.cfg.Name)
			return err
		})
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

// membership is the life of the worker under one incarnation.
func (w *worker) membership(ctx context.Context) (err error) {
	if w.id, err = uuid.NewV7(); err != nil {
		return err
	}
	w.parts, w.coordinator, w.leaving = make(map[uuid.UUID]*part), nil, false
	if w.cfg.System != nil {
		w.system = w.cfg.System()
	} else {
		w.system = newSystem(w.log)
		defer w.system.Shutdown()
	}
	w.mesh = mesh.New(mesh.Config{Self: w.id, Name: w.cfg.Name, System: w.system, Secure: true, Streams: w.cfg.LaneStreams, Control: w.control, Logger: w.log,
		Broken: func(id uuid.UUID, err error) {
			w.log.Error("a process can't be sent to any more", "process", id, "err", err)
			go w.giveUp("something could not be sent") // whoever sends may hold what giving up takes
		}})
	listen, err := w.listen(ctx)
	if err != nil {
		return err
	}
	w.transport, err = transport.Listen(transport.Config{
		System: w.system, Listen: listen, Advertise: w.cfg.Advertise, DataListen: w.cfg.DataListen,
		Server: pki.ServerTLS(w.root, w.keeper.Get),
		Client: func(string) *tls.Config { return pki.ClientTLS(w.root, w.keeper.Get) },
		Allow:  allow, Identify: identify, Logger: w.log,
		Handlers: transport.Handlers{Envelope: w.mesh.Envelope, Streams: map[string]func(net.Conn, transport.Peer){mesh.LaneProtocol: w.mesh.Accept, probeProtocol: serveProbe}},
	})
	if err != nil {
		return err
	}
	w.mesh.Start(w.transport)
	offer, err := w.offer()
	if err == nil {
		w.client = beat.NewClient(beat.ClientConfig{
			Dial: func(ctx context.Context) (net.Conn, error) {
				return w.transport.Dial(ctx, w.cfg.Join, beatProtocol)
			},
			Hello:    &wire.Hello{Worker: &wire.Peer{Name: w.cfg.Name, Incarnation: w.id[:], Address: w.transport.Address(), DataAddress: w.transport.DataAddress()}, Build: w.build, Offer: offer},
			Welcomed: w.welcome, Status: w.status, Logger: w.log,
		})
		leased, stop := context.WithCancel(ctx)
		w.running.Add(2)
		go func() { // ends with leased
			defer w.running.Done()
			w.minds(leased)
		}()
		go func() { // ends with leased
			defer w.running.Done()
			w.logs.run(leased, func(ctx context.Context) (net.Conn, error) { return w.transport.Dial(ctx, w.cfg.Join, logProtocol) })
		}()
		err = w.client.Run(ctx)
		stop()
	}
	w.mu.Lock()
	w.leaving = true
	w.mu.Unlock()
	w.giveUp("the membership has ended")
	w.running.Wait()
	w.transport.Close()
	w.mesh.Close()
	return err
}

// listen is the address to listen at: where none is given, that of the interface by which
// the coordinator is reached.
func (w *worker) listen(ctx context.Context) (string, error) {
	if w.cfg.Listen != "" {
		return w.cfg.Listen, nil
	}
	var conn net.Conn
	err := w.reach(ctx, func() (err error) {
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

// offer says what this worker has.
func (w *worker) offer() (*wire.Offer, error) {
	w.devices = w.offeredDevices()
	d, err := device.OpenKind(device.Options{Kind: device.CPU, Threads: w.cfg.Threads})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	cores := w.cfg.Threads
	if cores == 0 {
		cores = runtime.GOMAXPROCS(0)
	}
	return &wire.Offer{Cores: int32(cores), MemoryBytes: sysinfo.MemoryBytes(), Kernels: d.Path(), Devices: w.devices, Registered: registry.Names()}, nil //nolint:gosec // a number of cores
}

// welcome takes the coordinator's word that this worker is a member. Another coordinator
// than before knows nothing of the attempts here.
func (w *worker) welcome(m *wire.Welcome) {
	w.mu.Lock()
	was := w.coordinator
	w.coordinator, w.welcomed = m.GetCoordinator(), true
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
	w.mesh.Reconnected(id)
	w.log.Info("joined", "coordinator", m.GetCoordinator().GetAddress(), "address", w.transport.Address())
}

// minds gives the ranks up when the coordinator was silent for longer than their lease.
func (w *worker) minds(ctx context.Context) {
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
				p.end(fmt.Sprintf("nothing was heard of the coordinator for %.1f s", quiet.Seconds()))
			}
		}
		w.mu.Unlock()
	}
}

// giveUp ends every attempt's stages here.
func (w *worker) giveUp(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		p.end(why)
	}
}
