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

// open begins to listen. A process must do it only once: protoactor's remote sets gRPC's global
// logger, which the last goroutines of an earlier remote may still read.
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

// listen returns the address to listen at: the given one, or that of the interface that reaches the
// coordinator.
func (w *worker) listen(ctx context.Context) (string, error) {
	if w.cfg.Listen != "" {
		return w.cfg.Listen, nil
	}
	var conn net.Conn
	err := w.reach(ctx, func() (err error) {
		if w.at.Searches() { // only a connection shows which of the addresses is the coordinator's
			conn, err = w.dialCoordinator(ctx, logProtocol)
			return err
		}
		conn, err = new(net.Dialer).DialContext(ctx, "udp", w.cfg.Join) // sends nothing
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find the interface that reaches the coordinator: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return net.JoinHostPort(host, "0"), err
}

// close undoes open.
func (w *worker) close() {
	if w.transport != nil {
		w.transport.Close()
	}
	if w.shutdown != nil {
		w.shutdown()
	}
}

// offer describes the resources of this worker.
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

// offeredDevices returns the GPUs of this machine that can be opened. `engine doctor` says what is
// wrong with the others.
func (w *worker) offeredDevices() []*wire.OfferedDevice {
	found, err := cuda.Find(device.CUDAOptions())
	if err != nil && !errors.Is(err, cuda.ErrUnavailable) {
		w.log.Warn("can't offer a GPU; engine doctor says more", "err", err)
	}
	var all []*wire.OfferedDevice
	for _, g := range found[:min(len(found), limitDevices)] {
		all = append(all, &wire.OfferedDevice{Kind: device.CUDA, Ordinal: int32(g.Ordinal), Id: g.ID[:], Name: g.Name, MemoryBytes: g.MemoryBytes,
			Kernels: g.Path})
	}
	return all
}

// cores returns how many threads compute here.
func (w *worker) cores() int {
	if w.cfg.Threads > 0 {
		return w.cfg.Threads
	}
	return runtime.GOMAXPROCS(0)
}
