package cluster

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// logProtocol is the name of the streams by which workers send their log.
const logProtocol = "log"

// forwarder sends a worker's log to the coordinator. What has no room is counted.
type forwarder struct {
	queue   chan *wire.LogRecord
	dropped atomic.Uint64
}

func newForwarder() *forwarder { return &forwarder{queue: make(chan *wire.LogRecord, limitLogQueue)} }

// add is a logHandler's sink. It never waits.
func (f *forwarder) add(r *wire.LogRecord) {
	select {
	case f.queue <- r:
	default:
		f.dropped.Add(1)
	}
}

// run sends records until ctx ends, over streams that dial opens.
func (f *forwarder) run(ctx context.Context, dial func(context.Context) (net.Conn, error)) {
	for ctx.Err() == nil {
		if conn, err := dial(ctx); err == nil {
			f.send(ctx, conn)
		}
		select {
		case <-time.After(logRedial):
		case <-ctx.Done():
		}
	}
}

// send sends records over a stream until it breaks or ctx ends; then it sends what is left.
func (f *forwarder) send(ctx context.Context, conn net.Conn) {
	broken := make(chan struct{})
	go func() { // ends with the stream, on which nothing comes
		defer close(broken)
		_, _ = io.Copy(io.Discard, conn)
	}()
	defer func() {
		_ = conn.Close()
		<-broken
	}()
	for {
		select {
		case r := <-f.queue:
			if !f.sendBatch(conn, r, writeTime) {
				return
			}
		case <-broken:
			return
		case <-ctx.Done():
			for {
				select {
				case r := <-f.queue:
					if !f.sendBatch(conn, r, logFlushTime) {
						return
					}
				default:
					return
				}
			}
		}
	}
}

// sendBatch sends a record, and those that wait behind it.
func (f *forwarder) sendBatch(conn net.Conn, first *wire.LogRecord, within time.Duration) bool {
	b := &wire.LogBatch{Records: []*wire.LogRecord{first}, Dropped: f.dropped.Swap(0)}
	for len(b.Records) < limitLogBatch && len(f.queue) > 0 {
		b.Records = append(b.Records, <-f.queue)
	}
	err := conn.SetWriteDeadline(time.Now().Add(within))
	if err == nil {
		err = wire.WriteFrame(conn, b, limitLogBatchBytes)
	}
	if err != nil {
		f.dropped.Add(uint64(len(b.Records)) + b.Dropped)
	}
	return err == nil
}

// serveLog takes a worker's log, and sets its times by this process's clock.
func (c *Coordinator) serveLog(conn net.Conn, p transport.Peer) {
	defer conn.Close() //nolint:errcheck // it has ended
	for {
		var b wire.LogBatch
		if err := wire.ReadFrame(conn, &b, limitLogBatchBytes); err != nil {
			return
		}
		var ahead time.Duration
		for _, m := range c.beats.Members() {
			if m.Name == p.Name {
				ahead = m.Offset
			}
		}
		records := b.GetRecords()[:min(len(b.GetRecords()), limitLogBatch)]
		for _, r := range records {
			r.Process, r.OffsetNs = p.Name, int64(ahead)
			r.TimeNs -= int64(ahead)
			r.Text = shorten(r.GetText(), limitLogTextBytes)
			r.Attributes = r.GetAttributes()[:min(len(r.GetAttributes()), limitLogAttributes)]
			for _, a := range r.Attributes {
				a.Key, a.Value = shorten(a.GetKey(), limitNameBytes), shorten(a.GetValue(), limitLogValueBytes)
			}
		}
		c.logs.add(records, b.GetDropped())
	}
}
