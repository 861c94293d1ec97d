package lane

import (
	"fmt"
	"runtime"
	"testing"
)

// pair is two nodes over loopback TCP. Take returns the same memory for every message.
func pair(tb testing.TB, config Config, size int) (g *Group, to ID, done func()) {
	w := newWorld(tb, tcpLink(tb))
	a, b := w.node("a", config), w.node("b", config)
	a.SetPeer(idOf("b"), "b")
	parts, ended := [][]byte{make([]byte, size)}, func(error) {}
	b.Open(ID{1}, func(ID, []byte, []int) ([][]byte, func(error), error) { return parts, ended, nil })
	return a.Open(ID{1}, nil), idOf("b"), w.close
}

// BenchmarkLane moves messages one after another within one process. The command in bench/ compares two processes with others.
func BenchmarkLane(b *testing.B) {
	for _, shared := range []bool{false, true} {
		for _, size := range []int{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("shared=%v/%dKiB", shared, size>>10), func(b *testing.B) {
				g, to, done := pair(b, Config{NoSharedMemory: !shared, Checksum: true}, size)
				defer done()
				parts, header, acked := [][]byte{make([]byte, size)}, make([]byte, 64), make(chan error, 1)
				report := func(err error) { acked <- err }
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					g.Send(to, header, parts, report)
					if err := <-acked; err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestAllocations: the lane's allocations for a message don't grow with its payload.
func TestAllocations(t *testing.T) {
	const size, rounds = 8 << 20, 50
	for _, shared := range []bool{false, true} {
		g, to, done := pair(t, Config{NoSharedMemory: !shared, Checksum: true, Streams: 2}, size)
		parts, acked := [][]byte{make([]byte, size)}, make(chan error, 1)
		send := func() {
			g.Send(to, nil, parts, func(err error) { acked <- err })
			if err := wait(t, acked); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			send()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			send()
		}
		runtime.ReadMemStats(&after)
		done()
		if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 64<<10 {
			t.Errorf("shared %v: %d bytes are allocated for a message of %d", shared, each, size)
		}
	}
}
