package forecast

import (
	"errors"
	"math"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
)

// TestNodes: which links groups and stages have on nodes of four, 1 GB/s between them and 10 GB/s within.
func TestNodes(t *testing.T) {
	d := Devices{Devices: 16, LatencyUS: 10, BytesPerS: 1e9, Nodes: Nodes{Devices: 4, Within: Link{LatencyUS: 2, BytesPerS: 10e9}}}
	for _, c := range []struct {
		name          string
		sizes         grid.Sizes
		dim           grid.Dimension
		latencyMS     float64
		bytesPerS     float64
		messageWithin bool // from stage 0 to stage 1
	}{
		{"a tensor group on a node", grid.Sizes{Tensor: []int{4}, Data: 4}, grid.Tensor, 0.002, 10e9, false},
		{"replicas, each on a node of its own", grid.Sizes{Tensor: []int{4}, Data: 4}, grid.Copies, 0.010, 1e9, false},
		// Of 7 others 3 are on the node: a byte for each takes 3/7 of 0.1 ns and 4/7 of 1 ns.
		{"a tensor group on two nodes", grid.Sizes{Tensor: []int{8}, Data: 2}, grid.Tensor, 0.010, 7e9 / (3*0.1 + 4), false},
		{"stages on a node", grid.Sizes{Tensor: []int{2}, Pipeline: 2, Data: 4}, grid.Tensor, 0.002, 10e9, true},
		{"stages on nodes of their own", grid.Sizes{Tensor: []int{4}, Pipeline: 4}, grid.Tensor, 0.002, 10e9, false},
		{"replicas beside each other by the order", grid.Sizes{Pipeline: 4, Data: 4, Order: "dp-pp"}, grid.Copies, 0.002, 10e9, false},
	} {
		g, err := grid.New(c.sizes)
		if err != nil {
			t.Fatal(err)
		}
		on := d.on(g)
		if latency, rate := on.Group(0, c.dim); math.Abs(latency-c.latencyMS) > 1e-12 || math.Abs(rate/c.bytesPerS-1) > 1e-12 {
			t.Errorf("%s: %v ms and %v bytes/s, want %v and %v", c.name, latency, rate, c.latencyMS, c.bytesPerS)
		}
		if g.Size(grid.Pipeline) == 1 {
			continue
		}
		want := d.link()
		if c.messageWithin {
			want = d.Nodes.Within
		}
		if got := on.Message(0, 1, 1e6); math.Abs(got-want.ms(1e6)) > 1e-12 {
			t.Errorf("%s: a message between stages takes %v ms, want %v", c.name, got, want.ms(1e6))
		}
	}
	// Pairs on nodes of three: ranks 2 and 3 are on two of them. Replicas 0, 2 and 4: two on the first node, one alone.
	odd := Devices{Devices: 6, LatencyUS: 10, BytesPerS: 1e9, Nodes: Nodes{Devices: 3, Within: Link{LatencyUS: 2, BytesPerS: 10e9}}}
	g, err := grid.New(grid.Sizes{Tensor: []int{2}, Data: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, dim := range []grid.Dimension{grid.Tensor, grid.Copies} {
		if latency, rate := odd.on(g).Group(0, dim); latency != 0.010 || rate != 1e9 {
			t.Errorf("groups along %v that straddle nodes: %v ms, %v bytes/s", dim, latency, rate)
		}
	}
	if err := (Nodes{Devices: 3}).check(16); !errors.Is(err, ErrDevices) {
		t.Errorf("16 devices on nodes of 3: %v", err)
	}
}
