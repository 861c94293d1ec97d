package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

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
		Handlers: transport.Handlers{Envelope: w.port.Envelope, Returned: w.port.Returned,
			Streams: map[string]func(net.Conn, transport.Peer){mesh.LaneProtocol: w.port.Accept, probeProtocol: w.probes.serve}},
	})
	if err != nil {
		w.close()
		return err
	}
	w.port.Resolve(w.system)
	return nil
}

// listen is the address to listen at: where none is given, that of the interface by which
// the coordinator is reached.
func (w *worker) listen(ctx context.Context) (string, error) {
	if w.cfg.Listen != "" {
		return w.cfg.Listen, nil
	}
	var conn net.Conn
	err := w.reach(ctx, func() (err error) {
		if w.at.Searches() { // which of the addresses is the coordinator's, only it can show
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

// close ends what open began.
func (w *worker) close() {
	if w.transport != nil {
		w.transport.Close()
	}
	if w.shutdown != nil {
		w.shutdown()
	}
}

// offer says what this worker has.
func (w *worker) offer() (*wire.Offer, error) {
	w.devices = w.offeredDevices()
	d, err := device.OpenKind(device.Options{Kind: device.CPU, Threads: w.cfg.Threads})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return &wire.Offer{Cores: int32(w.cores()), MemoryBytes: sysinfo.MemoryBytes(), Kernels: d.Path(), Devices: w.devices,
		Registered: registry.Names()}, nil
}

// offeredDevices are the GPUs of this machine that can be opened. What is wrong with others
// is said by `engine doctor`.
func (w *worker) offeredDevices() []*wire.OfferedDevice {
	found, err := cuda.Find(device.CUDAOptions())
	if err != nil && !errors.Is(err, cuda.ErrUnavailable) {
		w.log.Warn("no GPU is offered", "err", err)
	}
	var all []*wire.OfferedDevice
	for _, g := range found[:min(len(found), limitDevices)] {
		all = append(all, &wire.OfferedDevice{Kind: device.CUDA, Ordinal: int32(g.Ordinal), Id: g.ID[:], Name: g.Name, MemoryBytes: g.MemoryBytes,
			Kernels: g.Path})
	}
	return all
}

// cores are how many threads compute here.
func (w *worker) cores() int {
	if w.cfg.Threads > 0 {
		return w.cfg.Threads
	}
	return runtime.GOMAXPROCS(0)
}
