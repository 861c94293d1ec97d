package cluster

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestSharedMemory: ranks are divided by the memory of their hosts with what processes of a host share for what they send each other.
func TestSharedMemory(t *testing.T) {
	if most := int64(lane.DefaultStreams * lane.LimitSharedBytes); most != plan.MostLaneBytes {
		t.Errorf("two processes share up to %d bytes in each direction; plans say %d", most, plan.MostLaneBytes)
	}
	cfg, err := config.Parse("lane.toml", []byte("data.train = ['a.txt']"), []string{"pipeline.stages=4", "model.layers=4",
		"model.hidden=128", "model.heads=4", "model.context=256", "model.vocab=256", "batch.microbatch=1", `cluster.shadow="off"`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Resolve(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	need, err := p.RankBytes(plan.Shadows{})
	if err != nil {
		t.Fatal(err)
	}
	const edge = 4 * 128 * 256
	const much = 1 << 40
	for _, c := range []struct {
		name   string
		hosts  [2]int
		little int64 // memory of the second worker, beside that of two ranks
		want   string
	}{
		{"two hosts", [2]int{1, 2}, 0, "[0 1] [2 3]"},
		{"one host without room for it", [2]int{1, 1}, 0, "[0 1 2] [3]"},
		{"one host", [2]int{1, 1}, edge, "[0 1] [2 3]"},
	} {
		h := &hosts{Coordinator: deaf(t)}
		little := need[2] + need[3] + c.little
		for i, bytes := range []int64{much, little} {
			id := uuid.UUID{byte(i)}
			if c.hosts[0] == c.hosts[1] { // workers of a host share what each of them offers
				bytes *= 2
			}
			h.workers[id] = &workerState{Member: beat.Member{ID: id, Name: fmt.Sprint("w", i),
				Address: fmt.Sprintf("10.0.0.%d:%d", c.hosts[i], i+1), Offer: &wire.Offer{Cores: 8, MemoryBytes: bytes, Kernels: "avx2"}}}
		}
		a, _, err := h.choose(p.Config(), 2, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.divide(plan.Assignment{Config: p.Config(), Plan: p}); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := fmt.Sprint(a.shares[0].ranks, " ", a.shares[1].ranks); got != c.want {
			t.Errorf("%s: the workers have ranks %s, want %s", c.name, got, c.want)
		}
		bytes, err := a.hostBytes(p, plan.Shadows{})
		if extra := bytes[2] - need[2]; err != nil || (extra == edge) != (c.name == "one host") {
			t.Errorf("%s: rank 2 needs %d bytes more than alone, %v", c.name, extra, err)
		}
	}
}
