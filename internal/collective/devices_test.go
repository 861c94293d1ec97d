package collective_test

import (
	"math"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// TestDevices: the streams of a device reduce through a group, in the middle of a list.
func TestDevices(t *testing.T) {
	onCPU, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer onCPU.Close()
	onRef := ref.New()
	defer onRef.Close()
	for name, dev := range map[string]tensorops.Device{"cpu": onCPU, "ref": onRef} {
		t.Run(name, func(t *testing.T) {
			const n, length = 3, 1000
			got := make([][]float32, n)
			ended := make(chan error, n)
			for rank, g := range collective.Local("tp", n) {
				s := dev.NewStream(name)
				defer s.Close()
				host := make([]float32, length)
				for i := range host {
					host[i] = float32(i + rank)
				}
				got[rank] = make([]float32, length)
				l := s.NewList()
				part, whole := l.Alloc(tensorops.Float32, length), l.Alloc(tensorops.Float32, n*length)
				l.Upload(part, tensorops.HostBytes(host))
				l.AllGather(whole, part, 0, g)
				l.ReduceScatter(part, whole, 0, tensorops.Mean, g)
				l.AllReduce(part, tensorops.Sum, g)
				l.Fetch(tensorops.HostBytes(got[rank]), part)
				l.Free(part)
				l.Free(whole)
				s.Submit(l, func(err error) { ended <- err })
			}
			for range n {
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			}
			for rank := range n {
				for i, v := range got[rank] {
					if want := float64(3*i + 3); math.Abs(float64(v)-want) > 1e-3 {
						t.Fatalf("rank %d, element %d: %v, not %v", rank, i, v, want)
					}
				}
			}
		})
	}
}
