package cluster

import (
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/config"
)

// TestEdgeIsHere: with cluster.edge, stage 0 must be on the coordinator's host.
func TestEdgeIsHere(t *testing.T) {
	cfg, err := config.Parse("run.toml", []byte(`data.train = ["a.txt"]
pipeline = {stages = 2, schedule = "u-shape"}
parallel.tensor = [1, 2]
cluster = {edge = true, place = ["edge", "cloud", "cloud"]}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ edge, data, remote, want string }{
		{"127.0.0.1:7", "", "127.0.0.1:9", ""},
		{"[::1]:7", "127.0.0.1:8", "[::1]:9", ""},
		{"203.0.113.9:7", "", "127.0.0.1:9", `worker "edge", which has ranks of stage 0, is at 203.0.113.9`},
		{"edge.example:7", "", "127.0.0.1:9", "is at edge.example"},
		{"127.0.0.1:7", "203.0.113.9:8", "127.0.0.1:9", "receives tensors at 203.0.113.9"},
		{"127.0.0.1:7", "", "203.0.113.9:9", "connects from 203.0.113.9"},
		{"127.0.0.1:7", "", "", "connects from an unknown address"},
	} {
		a := &attempt{cfg: cfg}
		for i, address := range []string{c.edge, "203.0.113.9:7"} {
			m := beat.Member{}
			m.Name, m.Address = []string{"edge", "cloud"}[i], address
			if m.Name == "edge" {
				m.DataAddress, m.Remote = c.data, c.remote
			}
			a.shares = append(a.shares, &share{Member: m, ranks: [][]int{{0}, {1, 2}}[i]})
		}
		if !a.onEdge(a.shares[0]) || a.onEdge(a.shares[1]) {
			t.Errorf("the edge is %v, the other %v", a.onEdge(a.shares[0]), a.onEdge(a.shares[1]))
		}
		if err := a.checkEdge(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
