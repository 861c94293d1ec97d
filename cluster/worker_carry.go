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
	carryAloneTime  = 60 * time.Millisecond  // for which a worker computes alone
	carryAlonePart  = 5 * time.Millisecond   // of which the middle one counts
	carryTime       = 300 * time.Millisecond // for which it computes and sends
	carryBlockBytes = 1 << 20                // that it sends before it looks at the time
	carryNumbers    = 4096                   // that are added between two looks at whether to go on
)

// computing are goroutines that compute, as many as a worker has threads, so that it is seen what else takes of their
// processors: the process, the system, and whatever carries packets.
type computing struct {
	ends    atomic.Bool
	running sync.WaitGroup
	rounds  []computed
}

// computed counts what one of them has done, in a cache line of its own.
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

// rate is how many rounds a nanosecond has while nothing is sent: in the middle one of some parts of carryAloneTime, since another
// may begin to send a little sooner, or in all of them where the machine has so much to do that most parts have none.
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

// measureCarry measures how many nanoseconds each of some threads computes less for a byte that is sent to another
// process, or comes meanwhile: 0 where processors are left over. Others should begin to send at the same time.
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

// carry measures what messages take of this worker's computing.
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
