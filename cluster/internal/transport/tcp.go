package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/eventstream"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Config configures Listen.
type Config struct {
	// System gets the transport's address. Nothing may run in it yet. It can have only one transport
	// in its lifetime.
	System *actor.ActorSystem
	Listen string // host:port; port 0: any free port
	// Advertise is the host:port at which others reach it, for example behind NAT; "": Listen's; port 0: Listen's port.
	Advertise  string
	DataListen string                           // host:port of a second listener, for streams on a second network; "": none
	Server     *tls.Config                      // nil: no TLS
	Client     func(address string) *tls.Config // for dialing; nil: no TLS
	Insecure   bool                             // allow non-loopback addresses without TLS
	// Allow reports whether a peer with a certificate may use a protocol (ProtocolControl for envelopes); nil: it may use
	// all. A peer without a certificate may use only ProtocolJoin, or, without TLS, everything.
	Allow    func(p Peer, protocol string) bool
	Identify func(tls.ConnectionState) (name, role string, err error) // from a peer's verified certificate
	Logger   *slog.Logger                                             // nil: slog's default
	Handlers
}

// TCP is a Transport over TCP.
type TCP struct {
	cfg       Config
	address   string
	serverTLS *tls.Config
	lines     *boundedLog
	admission *admission
	remote    *remote.Remote
	link      *actor.PID
	linkEnded chan struct{} // closed when the link actor has stopped
	events    *eventstream.Subscription
	unhandled *units
	data      net.Listener       // nil: none
	ctx       context.Context    // ends with Close
	cancel    context.CancelFunc // of ctx
	handlers  sync.WaitGroup     // handlers of streams, and acceptData

	mu       sync.Mutex
	closed   bool
	backlogs map[string]*backlog   // by address
	streams  map[string]*outStream // by address: the latest
	controls map[string]int        // by the peer's name: number of its control streams
}

var _ Transport = (*TCP)(nil)

// Listen begins to receive. A process must do it only once: protoactor's remote sets gRPC's global
// logger, which the last goroutines of an earlier remote may still read.
func Listen(cfg Config) (*TCP, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t := &TCP{
		cfg:       cfg,
		lines:     &boundedLog{logger: cfg.Logger},
		admission: newAdmission(cfg.Server == nil, openFiles()),
		linkEnded: make(chan struct{}),
		unhandled: newUnits(LimitUnhandledBytes / unhandledUnit),
		backlogs:  make(map[string]*backlog),
		streams:   make(map[string]*outStream),
		controls:  make(map[string]int),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if cfg.Server != nil {
		t.serverTLS = cfg.serverTLS()
	}
	if err := t.start(); err != nil {
		t.cancel()
		if t.data != nil {
			_ = t.data.Close()
		}
		return nil, err
	}
	return t, nil
}

// DataAddress returns the address of the second listener; "": there is none.
func (t *TCP) DataAddress() string {
	if t.data == nil {
		return ""
	}
	return t.data.Addr().String()
}

// Address returns the host:port at which others reach this process.
func (t *TCP) Address() string { return t.address }

// Dial opens a stream.
func (t *TCP) Dial(ctx context.Context, address, protocol string) (net.Conn, error) {
	if t.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return t.dialer(address).Dial(ctx, address, protocol)
}

func (t *TCP) dialer(address string) Dialer {
	d := Dialer{Insecure: t.cfg.Insecure}
	if t.cfg.Client != nil {
		d.TLS = t.cfg.Client(address)
	}
	return d
}

func (cfg *Config) check() error {
	switch {
	case cfg.System == nil:
		return errors.New("a transport needs an actor system")
	case cfg.Listen == "":
		return errors.New("a transport needs an address to listen on")
	case (cfg.Server == nil) != (cfg.Client == nil):
		return errors.New("TLS is configured for only one direction; set both Server and Client, or neither")
	case cfg.Server != nil && cfg.Identify == nil:
		return errors.New("TLS needs Identify, which returns a peer's name and role")
	}
	for _, id := range []string{LinkActor, "activator", "EndpointSupervisor"} {
		if _, taken := cfg.System.ProcessRegistry.GetLocal(id); taken {
			return fmt.Errorf("%w: it has the actor %s", ErrInUse, id)
		}
	}
	for name := range cfg.Streams {
		if err := checkProtocol(name); err != nil {
			return err
		}
	}
	return cfg.checkSecure()
}

// checkSecure refuses non-loopback addresses without TLS, unless cfg.Insecure is set.
func (cfg *Config) checkSecure() error {
	if cfg.Server != nil {
		return nil
	}
	for _, address := range []string{cfg.Listen, cfg.Advertise, cfg.DataListen} {
		if address == "" || onLoopback(address) {
			continue
		}
		if !cfg.Insecure {
			return fmt.Errorf("%w: any client that can connect to %s could control this process; use TLS, or listen on 127.0.0.1", ErrInsecure,
				address)
		}
		cfg.Logger.Warn("INSECURE: without TLS, any client that can connect to this address controls this process and can read and forge its messages",
			"address", address)
	}
	return nil
}

// onLoopback reports whether an address resolves only to loopback addresses. An address without a host
// means all interfaces.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), LimitHandshakeTime)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err == nil && len(ips) > 0 && !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !ip.Unmap().IsLoopback() })
}

// serverTLS returns the caller's TLS config with our protocols' names.
func (cfg *Config) serverTLS() *tls.Config {
	names := []string{alpnHTTP2}
	for name := range cfg.Streams {
		names = append(names, name)
	}
	slices.Sort(names[1:])
	var adapt func(c *tls.Config) *tls.Config
	adapt = func(c *tls.Config) *tls.Config {
		c = c.Clone()
		c.NextProtos = names
		c.MinVersion = max(c.MinVersion, tls.VersionTLS13)
		c.SessionTicketsDisabled = true // a resumed session would rely on an earlier check of the certificate
		if choose := c.GetConfigForClient; choose != nil {
			c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				chosen, err := choose(hello)
				if chosen == nil || err != nil {
					return nil, err
				}
				return adapt(chosen), nil
			}
		}
		return c
	}
	return adapt(cfg.Server)
}

func (t *TCP) start() error {
	if t.cfg.DataListen != "" {
		l, err := net.Listen("tcp", t.cfg.DataListen)
		if err != nil {
			return fmt.Errorf("listen for tensors: %w", err)
		}
		t.data = l
	}
	if err := t.startRemote(); err != nil {
		return err
	}
	// A message to an actor in another process must reach package mesh's resolver, or dead letters, but
	// not protoactor's remote, which would send anything.
	registry := t.cfg.System.ProcessRegistry
	registry.RemoteHandlers = registry.RemoteHandlers[:len(registry.RemoteHandlers)-1]
	t.events = t.cfg.System.EventStream.Subscribe(t.event)
	if t.data != nil {
		t.handlers.Add(1)
		go t.acceptData() // ends with the listener, which Close closes
	}
	return nil
}

// startRemote starts protoactor's remote, which opens its own listener, and the link actor.
func (t *TCP) startRemote() error {
	host, port, err := t.place()
	if err != nil {
		return err
	}
	advertised := t.cfg.Advertise
	if advertised != "" {
		if h, p, err := net.SplitHostPort(advertised); err == nil && p == "0" {
			advertised = net.JoinHostPort(h, strconv.Itoa(port))
		}
		if err := checkAddress(advertised); err != nil {
			return fmt.Errorf("address to advertise: %w", err)
		}
	}
	config := remote.Configure(host, port, t.options(advertised)...)
	config.MaxRetryCount = 1 // never reached: see outStream
	t.remote = remote.NewRemote(t.cfg.System, config)
	if err := withoutPanic(t.remote.Start); err != nil {
		return fmt.Errorf("listen on %s: %w", t.cfg.Listen, err)
	}
	t.address = t.cfg.System.Address()
	t.link, err = t.cfg.System.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &linkActor{t} }), LinkActor)
	if err != nil {
		t.remote.Shutdown(false)
		return fmt.Errorf("spawn the actor %s: %w", LinkActor, err)
	}
	return nil
}

// place returns where protoactor will listen. protoactor panics if it can't listen, so place tries it first.
func (t *TCP) place() (host string, port int, err error) {
	host, _, err = net.SplitHostPort(t.cfg.Listen)
	if err != nil {
		return "", 0, fmt.Errorf("address to listen on: %w", err)
	}
	l, err := net.Listen("tcp", t.cfg.Listen)
	if err != nil {
		return "", 0, err
	}
	got, ok := l.Addr().(*net.TCPAddr)
	_ = l.Close() // nothing was written
	if !ok {
		return "", 0, fmt.Errorf("listen: %v is not TCP", l.Addr())
	}
	if t.cfg.Advertise == "" && got.IP.IsUnspecified() {
		return "", 0,
			fmt.Errorf("%s means all interfaces, so others don't know which address reaches this process; name one (--advertise HOST:PORT)",
				t.cfg.Listen)
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		host = "[" + host + "]" // protoactor appends a colon and the port
	}
	return host, got.Port, nil
}

func withoutPanic(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	f()
	return nil
}

func (t *TCP) options(advertised string) []remote.ConfigOption {
	return []remote.ConfigOption{
		remote.WithAdvertisedHost(advertised),
		remote.WithEndpointWriterBatchSize(LimitBatch),
		remote.WithEndpointWriterQueueSize(writerQueue),
		remote.WithServerOptions(
			grpc.Creds(gate{t}),
			grpc.ConnectionTimeout(LimitHandshakeTime),
			grpc.MaxRecvMsgSize(recvBytesMax),
			grpc.MaxHeaderListSize(headerBytesMax),
			grpc.MaxConcurrentStreams(1), // a writer needs one
			grpc.ForceServerCodecV2(newCheckingCodec()),
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionIdle: idleTime}),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime, PermitWithoutStream: true}),
			grpc.StreamInterceptor(t.guarded),
			grpc.UnaryInterceptor(t.unaryRefused),
		),
		remote.WithDialOptions(
			grpc.WithTransportCredentials(insecure.NewCredentials()), // the dialer adds TLS, because it knows the address
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return t.dialer(address).open(ctx, address, alpnHTTP2)
			}),
			grpc.WithResolvers(asWrittenAll()...),
			grpc.WithNoProxy(),
			grpc.WithStreamInterceptor(t.openStream),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: redialFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialMax},
				MinConnectTimeout: redialPatience,
			}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * keepaliveTime, Timeout: keepaliveTimeout}),
			grpc.WithDisableServiceConfig(),
		),
		remote.WithCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(headerBytesMax)),
	}
}

func (t *TCP) acceptData() {
	defer t.handlers.Done()
	for pause := time.Millisecond; ; {
		raw, err := t.data.Accept()
		switch {
		case t.ctx.Err() != nil:
			if err == nil {
				_ = raw.Close()
			}
			return
		case err != nil: // for example, too many open files
			t.refuse(t.data.Addr(), err)
			select {
			case <-time.After(pause):
			case <-t.ctx.Done():
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		go func() { // ends with the handshake, which LimitHandshakeTime and Close end
			if conn, protocol, peer, err := t.receive(raw, false); err == nil {
				t.serve(protocol, conn, peer, nil)
			}
		}()
	}
}

// Close closes all connections that other processes have opened here, and stops listening.
func (t *TCP) Close() {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.closed = true
	t.mu.Unlock()
	t.cancel() // ends handshakes and control connections
	if t.data != nil {
		_ = t.data.Close() // its loop returns
	}
	t.admission.close()
	t.remote.Shutdown(false) // a graceful shutdown would wait for stopped peers, up to 20 s
	ended := make(chan struct{})
	go func() { // ends with the handlers, whose connections are closed
		t.handlers.Wait()
		close(ended)
	}()
	t.cfg.System.Root.Stop(t.link)
	late := time.After(LimitCloseTime)
	for _, end := range []<-chan struct{}{ended, t.linkEnded} {
		select {
		case <-end:
		case <-late:
			t.cfg.Logger.Warn("a handler still runs after the transport was closed", "waited_ms", LimitCloseTime.Milliseconds())
			late = time.After(0)
		}
	}
	t.lines.close()
}
