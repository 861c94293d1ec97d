package forecast

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// TestLone: where a member is measured without the others, every number that a collective makes is one that a member
// brought.
func TestLone(t *testing.T) {
	group := loneGroup(grid.Tensor, 3)
	for _, c := range []struct {
		name     string
		dst, src []int // shapes; no src: in place
		record   func(l *tensorops.List, dst, src tensorops.Tensor)
		want     []float32
	}{
		{"all_reduce", []int{2}, nil, func(l *tensorops.List, dst, _ tensorops.Tensor) { l.AllReduce(dst, tensorops.Sum, group) },
			[]float32{1, 2}},
		{"all_gather", []int{6, 1}, []int{2, 1}, func(l *tensorops.List, dst, src tensorops.Tensor) { l.AllGather(dst, src, 0, group) },
			[]float32{1, 2, 1, 2, 1, 2}},
		{"all_gather of columns", []int{2, 3}, []int{2, 1}, func(l *tensorops.List, dst,
			src tensorops.Tensor) {
			l.AllGather(dst, src, 1, group)
		}, []float32{1, 2, 1, 2, 1, 2}},
		{"all_gather in place", []int{6, 1}, nil, func(l *tensorops.List, dst,
			_ tensorops.Tensor) {
			l.AllGather(dst, dst.RowRange(0, 2), 0, group)
		}, []float32{1, 2, 1, 2, 1, 2}},
		{"reduce_scatter", []int{2, 1}, []int{6, 1}, func(l *tensorops.List, dst, src tensorops.Tensor) {
			l.ReduceScatter(dst, src, 0, tensorops.Sum, group)
		}, []float32{1, 2}},
		{"ring_forward", []int{2}, []int{2}, func(l *tensorops.List, dst, src tensorops.Tensor) { l.RingForward(dst, src, group) },
			[]float32{1, 2}},
		{"barrier", []int{2}, nil, func(l *tensorops.List, _, _ tensorops.Tensor) { l.Barrier(group) }, []float32{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev, err := cpu.New(cpu.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			stream := dev.NewStream("test")
			defer tensorops.CloseStream(stream)
			l := stream.NewList()
			dst := l.Alloc(tensorops.Float32, c.dst...)
			src, from := dst, dst
			if c.src != nil {
				src = l.Alloc(tensorops.Float32, c.src...)
				from = src
			}
			values := make([]float32, from.Len())
			for i := range values {
				values[i] = float32(i + 1)
			}
			l.Upload(from, tensorops.HostBytes(values))
			c.record(l, dst, src)
			got := make([]float32, dst.Len())
			l.Fetch(tensorops.HostBytes(got), dst)
			if err := tensorops.Run(stream, l); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
