package cluster

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/internal/wire"
)

// forwarder sends a worker's log to the coordinator. It discards and counts records when its queue is full.
type forwarder struct {
	queue   chan *wire.LogRecord
	dropped atomic.Uint64
}

func newForwarder() *forwarder { return &forwarder{queue: make(chan *wire.LogRecord, limitLogQueue)} }

// add queues a log record. It never waits.
func (f *forwarder) add(r *wire.LogRecord) {
	select {
	case f.queue <- r:
	default:
		f.dropped.Add(1)
	}
}

// run sends records over streams that dial opens, until ctx ends.
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

// send sends records over a stream until it breaks or ctx ends. When ctx ends it sends the queued records first.
func (f *forwarder) send(ctx context.Context, conn net.Conn) {
	broken := make(chan struct{})
	go func() { // ends with the stream; the coordinator sends nothing
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

// sendBatch sends a record and the queued ones after it.
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
