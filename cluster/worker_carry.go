package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
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

// pace is how fast a worker computes while nothing is sent.
type pace struct {
	rounds float64 // for each nanosecond, of all threads together
	cpuNS  float64 // of the cores for each round; 0: not known
}

// pace measures the pace. Both numbers are medians over the parts of carryAloneTime, because another worker may begin to send a
// little sooner. The rounds for each nanosecond are the mean if that is higher: on a busy machine most parts may be empty.
func (c *computing) pace(ctx context.Context) (pace, error) {
	var rounds, cpu []float64
	began, all := time.Now(), c.done()
	for time.Since(began) < carryAloneTime || len(cpu) == 0 {
		if err := ctx.Err(); err != nil {
			return pace{}, err
		}
		from, done, spent := time.Now(), c.done(), sysinfo.CPUTime()
		time.Sleep(carryAlonePart)
		n := float64(c.done() - done)
		if rounds = append(rounds, n/float64(time.Since(from))); n > 0 {
			cpu = append(cpu, float64(sysinfo.CPUTime()-spent)/n)
		}
	}
	mean := float64(c.done()-all) / float64(time.Since(began))
	return pace{max(middle(rounds), mean), middle(cpu)}, nil
}

// middle returns the median, the upper one of two.
func middle(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// lostNS returns the compute time that each of a number of threads lost while it did some rounds in a time, of which the cores spent
// cpuNS on this process and on interrupts. What the cores spent on anything except the rounds is a limit: on a busy machine, other
// programs take time, too, and sending costs none of that. Both are in nanoseconds.
func (p pace) lostNS(tookNS, rounds, cpuNS float64, threads int) float64 {
	lost := tookNS - rounds/p.rounds
	if p.cpuNS > 0 {
		lost = min(lost, (cpuNS-rounds*p.cpuNS)/float64(threads))
	}
	return max(lost, 0)
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
	alone, err := c.pace(ctx)
	if err != nil {
		return 0, err
	}
	spent := func() float64 { return float64(sysinfo.CPUTime() + sysinfo.InterruptTime()) }
	began, done, bytes, cpu := time.Now(), c.done(), -received.Load(), -spent()
	for time.Since(began) < carryTime {
		if _, err := trip(carryBlockBytes); err != nil {
			return 0, err
		}
		bytes += carryBlockBytes
	}
	took, rounds := float64(time.Since(began)), float64(c.done()-done)
	cpu += spent()
	bytes += received.Load()
	return alone.lostNS(took, rounds, cpu, threads) / float64(bytes), nil
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
