package mesh_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// traffic counts what processes have sent.
type traffic struct{ control, acks, tensors, mallocs, allocated, cpu int64 }

func trafficOf(all []*process) (c traffic) {
	for _, p := range all {
		c.control += p.net.messages.Load()
		c.acks += p.net.acks.Load()
		c.tensors += int64(p.mesh.BulkOut())
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.mallocs, c.allocated, c.cpu = int64(m.Mallocs), int64(m.TotalAlloc), int64(cpuTime())
	return c
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// BenchmarkStages trains in many stages that compute nothing, in 16 processes and the coordinator's. So it measures the cost
// of actors and messages. Every edge leads to another process, except in "near", where neighboring ranks share one. The
// first steps, which dial and fill pools, don't count.
func BenchmarkStages(b *testing.B) {
	const workers, warm, steps = 16, 5, 100
	var table strings.Builder
	fmt.Fprintf(&table,
		"| stages | microbatches | ms a step | messages a step: control | acknowledgements | tensors | messages/s | µs a message | cores, µs a message | by stages: µs a step | cores, µs | messages | heap, MiB |\n|%s\n", strings.Repeat("---|", 13))
	for _, c := range []struct {
		stages, microbatches int
		near                 bool
	}{{64, 8, false}, {128, 8, false}, {256, 8, false}, {512, 8, false}, {1024, 8, false}, {1024, 2, false}, {1024, 8, true}} {
		name := fmt.Sprintf("stages=%d,microbatches=%d", c.stages, c.microbatches)
		if c.near {
			name += ",near"
		}
		b.Run(name, func(b *testing.B) {
			before := heap()
			names, hosts := []string{boss}, make([]string, c.stages)
			for i := range workers {
				names = append(names, fmt.Sprint("worker-", i))
			}
			for r := range hosts {
				hosts[r] = names[1+r%workers]
				if c.near {
					hosts[r] = names[1+r*workers/c.stages]
				}
			}
			plan, err := scheduler.Generate(scheduler.Spec{Ranks: c.stages, Chunks: 1, Microbatches: c.microbatches})
			if err != nil {
				b.Fatal(err)
			}
			all := join(b, transport.NewMemory(), names...)
			var began, finished time.Time
			var first, last traffic
			var held int64
			run, parts := over(b, all, hosts, func(p *process) actors.Spec {
				s := virtualRun(plan, warm+steps)
				if p.name == boss {
					s.Device = nil
					s.OnEvent = func(e event.Event) {
						switch e, _ := e.(event.StepEvent); e.Step {
						case warm:
							first, began = trafficOf(all), time.Now()
						case warm + steps:
							finished, last = time.Now(), trafficOf(all)
							held = heap() - before
						}
					}
				}
				return s
			})
			if out := ended(b, run, parts, 3*time.Minute); out.Err != nil {
				b.Fatal(out.Err)
			}
			took := finished.Sub(began)
			control, acks, tensors := float64(last.control-first.control)/steps, float64(last.acks-first.acks)/steps,
				float64(last.tensors-first.tensors)/steps
			messages := control + acks + tensors
			ms := float64(took.Microseconds()) / 1000 / steps
			cpu := float64(last.cpu-first.cpu) / 1e6 / steps
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(cpu, "cpu-ms/step")
			b.ReportMetric(ms, "ms/step")
			b.ReportMetric(messages, "messages/step")
			b.ReportMetric(1000*ms/messages, "µs/message")
			b.ReportMetric(float64(last.mallocs-first.mallocs)/steps/messages, "mallocs/message")
			b.ReportMetric(float64(last.allocated-first.allocated)/steps/messages, "B/message")
			b.ReportMetric(float64(held)/(1<<20), "MiB")
			near := ""
			if c.near {
				near = ", near"
			}
			fmt.Fprintf(&table, "| %d%s | %d | %.1f | %.0f | %.0f | %.0f | %.0f | %.1f | %.1f | %.0f | %.0f | %.1f | %.0f |\n", c.stages, near,
				c.microbatches, ms, control, acks, tensors, 1000*messages/ms,
				1000*ms/messages, 1000*cpu/messages, 1000*ms/float64(c.stages), 1000*cpu/float64(c.stages), messages/float64(c.stages),
				float64(held)/(1<<20))
		})
	}
	fmt.Fprint(os.Stderr, table.String()) // a benchmark with others below has no log
}
