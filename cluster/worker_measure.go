package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
)

// measureLink measures the link to another process. The latency is half the median round trip. The
// rate is that of the median block, without the latency.
func measureLink(ctx context.Context, t transport.Transport, p *wire.Peer) *wire.Link {
	l := &wire.Link{To: p.GetName()}
	if err := measureInto(ctx, t, p, l); err != nil {
		l.Error = fmt.Sprintf("%.1000s", err)
	}
	return l
}

func measureInto(ctx context.Context, t transport.Transport, p *wire.Peer, l *wire.Link) error {
	trip, end, err := dialProbe(ctx, t, p)
	if err != nil {
		return err
	}
	defer end()
	var pings [probePings]time.Duration
	for i := range pings {
		if pings[i], err = trip(0); err != nil {
			return err
		}
	}
	slices.Sort(pings[:])
	ping := pings[len(pings)/2]
	if _, err := trip(probeBytes); err != nil { // a warm-up: TCP finds its rate
		return err
	}
	var blocks []time.Duration
	for began := time.Now(); len(blocks) < probeBlocks && (len(blocks) == 0 || time.Since(began) < probeBlocksTime); {
		took, err := trip(probeBytes)
		if err != nil {
			return err
		}
		blocks = append(blocks, took)
	}
	slices.Sort(blocks)
	middle := blocks[len(blocks)/2]
	l.LatencyMs = float64(ping) / 2 / float64(time.Millisecond)
	// the shortest ping: while other workers send, most pings wait behind their data
	l.BytesPerS = probeBytes / max(middle-pings[0], time.Microsecond).Seconds()
	return nil
}

// connect measures the links from this worker to others, and replies.
func (w *membership) connect(number uint64, m *wire.Connect) {
	answer := &wire.Connected{}
	for _, p := range m.GetPeers() {
		answer.Links = append(answer.Links, measureLink(context.Background(), w.transport, p))
	}
	w.tell(&wire.Control{Request: number, Kind: &wire.Control_Connected{Connected: answer}})
}

// limitMeasureS bounds how long a worker measures, in seconds.
const limitMeasureS = 60

// measure measures how long a model's layers take here, and replies.
func (w *membership) measure(number uint64, m *wire.Measure) {
	answer := &wire.Measured{}
	costs, err := w.costs(m)
	if err == nil {
		answer.Costs, err = json.Marshal(costs)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	w.tell(&wire.Control{Request: number, Kind: &wire.Control_Measured{Measured: answer}})
}

func (w *worker) costs(m *wire.Measure) (*forecast.Costs, error) {
	cfg, err := config.ParseStored("the coordinator's configuration", m.GetConfig())
	if err != nil {
		return nil, err
	}
	if w.cfg.Threads > 0 {
		cfg.Device.Threads = w.cfg.Threads
	}
	var model stages.Config
	if err := json.Unmarshal(m.GetModel(), &model); err != nil {
		return nil, fmt.Errorf("parse the model: %w", err)
	}
	var table []byte
	if len(m.GetTable()) > 0 {
		table = m.GetTable()
	}
	p, err := plan.NewOf(cfg, model, table)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*limitMeasureS*time.Second)
	defer cancel()
	return forecast.MeasureRank(ctx, p, []int{cfg.Batch.Microbatch}, min(m.GetSeconds(), limitMeasureS))
}
