package cluster

import (
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/cluster/internal/logring"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// logProtocol is the name of the streams that carry the workers' logs.
const logProtocol = "log"

// serveLog stores a worker's log records, with times corrected to this process's clock.
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
			logring.Bound(r)
		}
		c.logs.Add(records, b.GetDropped())
	}
}

// logs sends the kept log records, and with follow the new ones.
func (a *answerer) logs(m *wire.LogsRequest) error {
	var ids []string
	if m.GetRun() != "" {
		r, err := a.c.runs.find(m.GetRun())
		if err != nil {
			return err
		}
		ids = r.ids()
	}
	send := func(records []*wire.LogRecord, dropped uint64, always bool) error {
		chosen := make([]*wire.LogRecord, 0, len(records))
		short := a.c.runs.shortIDs()
		size := 0
		for _, r := range records {
			if r.GetTimeNs() < m.GetSinceNs() || len(ids) > 0 && !logring.OfRun(r, ids...) {
				continue
			}
			if size += proto.Size(r) + 8; size > limitReplyBytes/2 { // in several replies
				if err := a.write(&wire.ApiReply{Kind: &wire.ApiReply_Logs{Logs: &wire.LogsReply{Records: chosen, Dropped: dropped}}}); err != nil {
					return err
				}
				chosen, size = chosen[:0], 0
			}
			chosen = append(chosen, logring.Replace(r, "run", short))
		}
		if len(chosen) == 0 && !always {
			return nil
		}
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Logs{Logs: &wire.LogsReply{Records: chosen, Dropped: dropped}}})
	}
	past, dropped, f := a.c.logs.Follow(m.GetFollow())
	if f != nil {
		defer a.c.logs.Leave(f)
	}
	if err := send(past, dropped, true); err != nil || f == nil {
		return err
	}
	defer a.alive()()
	for {
		select {
		case records, more := <-f.Batches:
			if !more {
				return ErrSlow
			}
			if err := send(records, 0, false); err != nil {
				return err
			}
		case <-a.ctx.Done():
			return nil
		}
	}
}
