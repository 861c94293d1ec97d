package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/discovery"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/cluster/internal/members"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
)

// start opens the coordinator's folder, begins to listen, and resumes the journal's runs.
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
	if err := c.openFolder(); err != nil {
		return err
	}
	if err := c.certify(); err != nil {
		return err
	}
	if err := c.listen(ctx); err != nil {
		return err
	}
	if err := c.serve(ctx); err != nil {
		return err
	}
	c.runs.takeUp()
	close(c.up)
	return nil
}

// openFolder opens the authority and the journal in the coordinator's folder, if it has one.
func (c *Coordinator) openFolder() (err error) {
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
		if c.runs.journal, err = journal.Open(c.cfg.Dir); err != nil {
			return err
		}
		if err := c.runs.journal.Damaged(); err != nil {
			c.log.Warn("damaged file", "err", err)
		}
		if c.generation, err = c.runs.journal.FirstAttempt(); err != nil {
			c.log.Warn("can't read the number of the last attempt; attempts may get numbers that were used before", "err", err)
		}
	}
	for _, n := range c.authority.Names() {
		c.names.expected(n.Name)
	}
	return nil
}

// certify gives the coordinator its own certificate and a keeper that renews it.
func (c *Coordinator) certify() error {
	identity := pki.Identity{Name: coordinatorName, Role: pki.Coordinator}
	cert, err := c.authority.Issue(identity, pki.CertificateTTL)
	if err != nil {
		return err
	}
	c.keeper = pki.NewKeeper(cert, func(_ context.Context, csr []byte) ([]byte, error) {
		return c.authority.Sign(csr, identity, pki.CertificateTTL)
	}, c.log)
	return nil
}

// listen begins to listen. Workers may join once everything that serves them exists.
func (c *Coordinator) listen(ctx context.Context) (err error) {
	if c.system = c.cfg.System; c.system == nil {
		c.system = newSystem(c.log)
		c.shutdown = c.system.Shutdown
	}
	c.beats = beat.NewServer(beat.ServerConfig{
		Silence: c.cfg.Silence, Reach: c.reach, Admit: c.admit, Joined: c.joined, Gone: c.gone, Status: c.status, Unreachable: c.far,
		Leaving: c.leaving, Probe: probe, Awake: c.awake, Logger: c.log, Self: func() *wire.Peer { return c.self },
	})
	ready := make(chan struct{}) // closed when a worker may join
	var port mesh.Port
	c.transport, err = transport.Listen(transport.Config{
		System: c.system, Listen: c.cfg.Listen, Advertise: c.cfg.Advertise, DataListen: c.cfg.DataListen,
		Server: pki.ServerTLS(c.authority.Root(), c.keeper.Get),
		Client: func(address string) *tls.Config {
			return pki.ClientTLSTo(port.NameAt(address), c.authority.Root(), c.keeper.Get, pki.Worker)
		},
		Allow: allow, Identify: c.identify, Logger: c.log,
		Handlers: transport.Handlers{Envelope: port.Envelope, Returned: port.Returned, Streams: c.streams(ctx, &port, ready)},
	})
	if err != nil {
		return err
	}
	c.self = &wire.Peer{Name: coordinatorName, Incarnation: c.id[:], Address: c.transport.Address(), DataAddress: c.transport.DataAddress()}
	port.Resolve(c.system)
	c.mesh = mesh.New(mesh.Config{
		Self: c.id, Name: coordinatorName, System: c.system, Secure: true, Streams: c.cfg.LaneStreams, Control: c.control, Logger: c.log,
		Awake: c.awake, Broken: func(id uuid.UUID, err error) { c.beats.Expel(id, err) },
	}, c.transport)
	port.Use(c.mesh)
	if c.members, err = members.New(c.system, c.memberships); err != nil {
		return err
	}
	close(ready)
	return nil
}

// streams returns the handler for each protocol's streams. Streams of beats, which make workers members, wait for ready.
func (c *Coordinator) streams(ctx context.Context, port *mesh.Port, ready <-chan struct{}) map[string]func(net.Conn, transport.Peer) {
	return map[string]func(net.Conn, transport.Peer){
		transport.ProtocolJoin: c.serveJoin,
		renewProtocol:          c.serveRenew,
		apiProtocol:            c.serveAPI,
		logProtocol:            c.serveLog,
		mesh.LaneProtocol:      port.Accept,
		probeProtocol:          new(prober).serve,
		beatProtocol: func(conn net.Conn, p transport.Peer) {
			select {
			case <-ready:
				c.beats.Serve(conn, p.Name)
			case <-ctx.Done():
				_ = conn.Close()
			}
		},
	}
}

// serve starts the coordinator's background work and announces its address.
func (c *Coordinator) serve(ctx context.Context) error {
	c.running.Go(func() { c.keeper.Run(ctx) })   // ends with ctx
	c.running.Go(func() { c.watchRevoked(ctx) }) // ends with ctx
	if c.runs.journal != nil {
		if err := c.runs.journal.Announce(c.Address()); err != nil {
			return fmt.Errorf("write the address to the coordinator's folder: %w", err)
		}
	}
	if c.announcer != nil {
		c.running.Go(func() { c.announce(ctx, c.announcer) }) // ends with ctx
	}
	return nil
}

// newSystem makes an actor system for a process whose caller gave none.
func newSystem(log *slog.Logger) *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Nanosecond)) // its goroutine sleeps that long
}

func identify(s tls.ConnectionState) (name, role string, err error) {
	id, err := pki.IdentityOf(s)
	return id.Name, string(id.Role), err
}

// probe checks whether a process listens at an address.
func probe(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
