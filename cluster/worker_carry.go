package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

const (
	carryAloneTime  = 60 * time.Millisecond  // how long a worker only computes
	carryAlonePart  = 5 * time.Millisecond   // parts of that time; the median part counts
	carryTime       = 300 * time.Millisecond // how long it computes and sends
	carryBlockBytes = 1 << 20                // bytes that it sends between two looks at the time
	carryNumbers    = 4096                   // numbers that it adds between two checks whether to stop
)

// computing runs one computing goroutine for each of a worker's threads. What they lose shows how much of the
// processors something else takes: this process, the system, and the handling of packets.
type computing struct {
	ends    atomic.Bool
	running sync.WaitGroup
	rounds  []computed
}

// computed counts the rounds of one goroutine, in its own cache line.
type computed struct {
	rounds atomic.Int64
	sum    float32
	_      [52]byte
}

func compute(threads int) *computing {
	c := &computing{rounds: make([]computed, threads)}
	for i := range c.rounds {
		own := &c.rounds[i]
		c.running.Go(func() { // ends with end
			numbers := make([]float32, carryNumbers)
			for !c.ends.Load() {
				for _, x := range numbers {
					own.sum += x
				}
				own.rounds.Add(1)
			}
		})
	}
	return c
}

func (c *computing) done() (all int64) {
	for i := range c.rounds {
		all += c.rounds[i].rounds.Load()
	}
	return all
}

// rate returns the rounds per nanosecond while nothing is sent. It is the median over the parts of carryAloneTime, because
// another worker may begin to send a little sooner, or the mean if that is higher: on a busy machine most parts may be empty.
func (c *computing) rate(ctx context.Context) (float64, error) {
	var parts []float64
	began, all := time.Now(), c.done()
	for time.Since(began) < carryAloneTime || c.done() == all {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		from, done := time.Now(), c.done()
		time.Sleep(carryAlonePart)
		parts = append(parts, float64(c.done()-done)/float64(time.Since(from)))
	}
	mean := float64(c.done()-all) / float64(time.Since(began))
	slices.Sort(parts)
	return max(parts[len(parts)/2], mean), nil
}

func (c *computing) end() {
	c.ends.Store(true)
	c.running.Wait()
}

// measureCarry measures the compute time, in ns for each thread, that a sent or received byte costs: 0 if the host has
// processors to spare. The other workers should begin to send at the same time.
func measureCarry(ctx context.Context, t transport.Transport, to *wire.Peer, threads int, received *atomic.Int64) (float64, error) {
	trip, end, err := dialProbe(ctx, t, to)
	if err != nil {
		return 0, err
	}
	defer end()
	c := compute(threads)
	defer c.end()
	rate, err := c.rate(ctx)
	if err != nil {
		return 0, err
	}
	began, done, bytes := time.Now(), c.done(), -received.Load()
	for time.Since(began) < carryTime {
		if _, err := trip(carryBlockBytes); err != nil {
			return 0, err
		}
		bytes += carryBlockBytes
	}
	took := float64(time.Since(began))
	rounds := float64(c.done() - done)
	bytes += received.Load()
	return max(took-rounds/rate, 0) / float64(bytes), nil
}

// carry measures the compute time that messages cost this worker, and replies.
func (w *membership) carry(number uint64, m *wire.Carry) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	answer := &wire.Carried{}
	var err error
	if answer.ByteNs, err = measureCarry(ctx, w.transport, m.GetTo(), w.cores(), &w.probes.received); err != nil {
		answer.Error = fmt.Sprintf("%.1000s", err)
	}
	w.tell(&wire.Control{Request: number, Kind: &wire.Control_Carried{Carried: answer}})
}
