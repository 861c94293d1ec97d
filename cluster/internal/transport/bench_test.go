package transport_test

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRounds sends an envelope and its answer between two processes, one at a time and many at once. ns/op is for one
// round.
func BenchmarkRounds(b *testing.B) {
	for _, mode := range []string{"plain", "tls"} {
		for _, bytes := range []int{100, 64 << 10, 1 << 20} {
			for _, window := range []int{1, 1_000} {
				if window*bytes > 1<<28 {
					window = 32
				}
				b.Run(fmt.Sprintf("%s/bytes=%d/window=%d", mode, bytes, window), func(b *testing.B) {
					var x, y nodeConfig
					if mode == "tls" {
						ca := newAuthority(b)
						// The one who answers says that it is "echo".
						x, y = ca.good("x", "worker"), ca.good("echo", "worker")
					}
					y.Echo = true
					there, here := startNode(b, y), startNode(b, x)
					here.do(command{Op: "rounds", To: there.Address, Sender: "x", N: 10, Window: 1})
					b.ResetTimer()
					got := here.do(command{Op: "rounds", To: there.Address, Sender: "x", N: uint64(b.N), Window: window, Bytes: bytes})
					if got.Error != "" {
						b.Fatal(got.Error)
					}
					b.ReportMetric(float64(b.N)/got.Took.Seconds(), "rounds/s")
					b.ReportMetric(float64(got.Took)/float64(b.N)/float64(time.Microsecond), "us/round")
				})
			}
		}
	}
}
