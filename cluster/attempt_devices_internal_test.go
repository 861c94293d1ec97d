package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// gpuRun parses the config of a run with GPU ranks.
func gpuRun(t *testing.T, stages int, sets ...string) *config.Config {
	t.Helper()
	sets = append(sets, fmt.Sprintf("pipeline.stages=%d", stages), "model.layers=4", "model.hidden=32", "model.heads=4", "model.context=32",
		"model.vocab=256")
	cfg, err := config.Parse("gpus.toml", []byte("data.train = ['a.txt']"), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// offering is a worker that offers GPUs with those ids.
func offering(name, ids string, memoryBytes int64) *workerState {
	o := &wire.Offer{Cores: 8, MemoryBytes: 1 << 40, Kernels: "avx2"}
	for i, id := range ids {
		o.Devices = append(o.Devices, &wire.OfferedDevice{Kind: "cuda", Ordinal: int32(i), Id: []byte{byte(id)}, Name: "GPU " + string(id),
			MemoryBytes: memoryBytes, Kernels: "cuda-sm_90"})
	}
	return &workerState{Member: beat.Member{Name: name, Address: "10.0.0.1:1", Offer: o}}
}

// TestGPUs: ranks are placed on workers with GPUs by GPU memory, so that few ranks share a GPU.
func TestGPUs(t *testing.T) {
	const much = 1 << 40
	type worker struct {
		ids    string
		memory int64
	}
	for _, c := range []struct {
		name    string
		ranks   int
		workers []worker
		want    string // of each worker the GPU of each of its ranks
	}{
		{"one GPU each", 2, []worker{{"a", much}, {"b", much}}, "0:GPU a | 1:GPU b"},
		{"one has none", 2, []worker{{"", 0}, {"b", much}}, "0:GPU b 1:GPU b"},
		{"two GPUs", 2, []worker{{"ab", much}}, "0:GPU a 1:GPU b"},
		{"both see both", 2, []worker{{"ab", much}, {"ab", much}}, "0:GPU a | 1:GPU b"},
		{"four ranks", 4, []worker{{"ab", much}, {"cd", much}}, "0:GPU a 1:GPU b | 2:GPU c 3:GPU d"},
		{"one GPU for two", 2, []worker{{"a", much}, {"a", much}}, "0:GPU a | 1:GPU a"},
		{"little memory", 2, []worker{{"a", 1 << 10}}, plan.ErrNoRoom.Error()},
		{"none", 2, []worker{{"", 0}}, plan.ErrNoRoom.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &hosts{Coordinator: &Coordinator{changed: make(chan struct{}), beats: beat.NewServer(beat.ServerConfig{})}}
			h.workers = make(map[uuid.UUID]*workerState)
			for i, w := range c.workers {
				state := offering(fmt.Sprint("w", i), w.ids, w.memory)
				state.ID = uuid.UUID{byte(i)}
				h.workers[state.ID] = state
			}
			p, err := plan.Resolve(gpuRun(t, c.ranks, "device.kind=cuda"), nil)
			if err != nil {
				t.Fatal(err)
			}
			a, _, err := h.choose(p.Config(), 1, false)
			if err == nil {
				err = a.divide(plan.Assignment{Config: p.Config(), Plan: p})
			}
			if err != nil {
				if !errors.Is(err, plan.ErrNoRoom) || !strings.Contains(err.Error(), c.want) {
					t.Fatal(err)
				}
				return
			}
			var got []string
			for _, s := range a.shares {
				var ranks []string
				for i, r := range s.ranks {
					ranks = append(ranks, fmt.Sprintf("%d:%s", r, s.devices[i].GetName()))
				}
				got = append(got, strings.Join(ranks, " "))
			}
			if text := strings.Join(got, " | "); text != c.want || a.Path() != "cuda-sm_90" || a.Devices() != "cuda" {
				t.Errorf("%s, %s, %s; want %s", text, a.Path(), a.Devices(), c.want)
			}
		})
	}
}

// TestGPUNumbers: a GPU's number refers to the rank's named worker, and needs one.
func TestGPUNumbers(t *testing.T) {
	one := offering("one", "abc", 1)
	for _, c := range []struct{ ranks, place, want string }{
		{`["cuda:2", "cuda:0"]`, `["one", "one"]`, "GPU c, GPU a"},
		{`["cuda:1", "cpu"]`, `["one", "one"]`, "GPU b, GPU b"},
		{`["cuda", "cuda"]`, `["one", "one"]`, "GPU a, GPU b"},
		{`["cuda", "cuda:3"]`, `["one", "one"]`, "cluster.place: rank 1 asks for cuda:3 of worker one, which offers only cuda:0, cuda:1, cuda:2"},
		{`["cuda", "cuda:1"]`, `[]`, "device.ranks: rank 1 asks for cuda:1, but on which worker?"},
	} {
		cfg := gpuRun(t, 2, "device.ranks="+c.ranks, "cluster.place="+c.place)
		s, err := &share{Member: one.Member, ranks: []int{0, 1}}, checkNumbers(cfg)
		if err == nil {
			err = s.onGPUs(cfg)
		}
		var names []string
		for _, d := range s.devices {
			names = append(names, d.GetName())
		}
		got := strings.Join(names, ", ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s on %s: %s, want %s", c.ranks, c.place, got, c.want)
		}
	}
}

// TestGPUKernels: GPUs with different kernels are not used together; a run on CPUs uses no GPU.
func TestGPUKernels(t *testing.T) {
	one, other := offering("one", "a", 1), offering("other", "b", 1)
	other.Offer.Devices[0].Kernels = "cuda-sm_80"
	both := []*workerState{one, other}
	if err := sameKernels(gpuRun(t, 2, "device.kind=cuda"), both); err == nil ||
		!strings.Contains(err.Error(), "device.kind: the GPU of worker one has cuda-sm_90") {
		t.Errorf("error %v", err)
	}
	cpu := gpuRun(t, 2)
	if err := sameKernels(cpu, both); err != nil {
		t.Error(err)
	}
	if cpu, gpu := kindsOf(cpu); !cpu || gpu {
		t.Error("auto is not the CPU")
	}
	mixed := gpuRun(t, 2, `device.ranks=["cuda", "cpu"]`)
	a := &attempt{cfg: mixed, shares: []*share{{Member: one.Member, ranks: []int{0, 1}}}}
	if err := a.shares[0].onGPUs(mixed); err != nil {
		t.Error(err)
	}
	if a.Path() != "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)" || a.Devices() != "cuda, cpu" || len(a.shares[0].devices) != 2 {
		t.Errorf("%s, %s, %d devices", a.Path(), a.Devices(), len(a.shares[0].devices))
	}
	if devices := unpackDevices(one.Offer.Devices); !slices.Equal(devices, []OfferedDevice{{"cuda", "61", "GPU a", 1, "cuda-sm_90"}}) {
		t.Errorf("%+v", devices)
	}
}
