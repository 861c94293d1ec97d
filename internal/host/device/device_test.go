package device

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// ranks parses a configuration of three ranks.
func ranks(t *testing.T, sets ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("ranks.toml", []byte("data.train = ['a.txt']\npipeline.stages = 3"), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// named is a device of which only its names are asked, and its limit.
type named struct {
	Device
	name, path string
	threads    int
}

func (n named) Name() string { return n.name }
func (n named) Path() string { return n.path }
func (n named) Threads() int { return n.threads }

func TestSetSaysWhatItIs(t *testing.T) {
	gpu, host := named{name: "cuda", path: "cuda-sm_90", threads: 1}, named{name: "cpu", path: "avx2", threads: 8}
	other, old := named{name: "cuda", path: "cuda-sm_90", threads: 1}, named{name: "cuda", path: "cuda-sm_80", threads: 1}
	on := func(ordinals ...int) (all []place) {
		for _, n := range ordinals {
			all = append(all, place{CUDA, n})
		}
		return all
	}
	cpu := place{kind: CPU}
	for _, c := range []struct {
		opened      []Device
		places      []place
		ranks       []int
		names, path string
		threads     int
	}{
		{[]Device{host}, []place{cpu}, []int{0, 0}, "cpu", "avx2", 8},
		{[]Device{gpu}, on(0), []int{0}, "cuda", "cuda-sm_90", 1},
		{[]Device{gpu}, on(1), []int{0, 0}, "cuda:1", "cuda-sm_90", 1},
		{[]Device{gpu, host}, append(on(0), cpu), []int{0, 1}, "cuda, cpu", "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)", 8},
		{[]Device{host, gpu}, append([]place{cpu}, on(0)...), []int{0, 1, 1, 1, 0, 1}, "cpu, cuda",
			"cpu-avx2 (ranks 0, 4), cuda-sm_90 (ranks 1-3, 5)", 8},
		{[]Device{gpu, other}, on(0, 1), []int{0, 1}, "cuda:0, cuda:1", "cuda-sm_90", 1},
		{[]Device{gpu, host, other}, append(append(on(1), cpu), on(0)...), []int{0, 1, 2, elsewhere, 2}, "cuda:1, cpu, cuda:0",
			"cuda-sm_90 (ranks 0, 2, 4), cpu-avx2 (rank 1)", 8},
		{[]Device{gpu, old}, on(0, 1), []int{0, 1}, "cuda:0, cuda:1", "cuda-sm_90 (rank 0), cuda-sm_80 (rank 1)", 1},
	} {
		d := &Set{opened: c.opened, places: c.places, ranks: c.ranks}
		if d.Names() != c.names || d.Path() != c.path || d.Threads() != c.threads {
			t.Errorf("%q, %q, %d threads; want %q, %q, %d", d.Names(), d.Path(), d.Threads(), c.names, c.path, c.threads)
		}
	}
}

// TestSpread: ranks go over GPUs in the order of both, as many on each; GPUs that are named or
// would give other bits are left out.
func TestSpread(t *testing.T) {
	found := func(paths ...string) (all []cuda.Found) {
		for i, p := range paths {
			all = append(all, cuda.Found{Ordinal: i, Path: p})
		}
		return all
	}
	for _, c := range []struct {
		ranks int
		found []cuda.Found
		named []int
		want  []int
	}{
		{3, found("a"), nil, []int{0, 0, 0}},
		{2, found("a", "a", "a", "a"), nil, []int{0, 1}},
		{4, found("a", "a"), nil, []int{0, 0, 1, 1}},
		{5, found("a", "a", "a"), nil, []int{0, 0, 1, 1, 2}},
		{2, found("a", "b", "a"), nil, []int{0, 2}},
		{2, found("a", "a", "a"), []int{0}, []int{1, 2}},
		{2, found("a", "b"), []int{0}, []int{0, 0}},
		{1, found("a", "a"), []int{0, 1, 7}, []int{0}},
	} {
		if got := spreadOver(c.ranks, c.found, c.named); !slices.Equal(got, c.want) {
			t.Errorf("%d ranks over %v without %d: %d, want %d", c.ranks, c.found, c.named, got, c.want)
		}
	}
	// What needs no look at GPUs has none.
	t.Setenv("TROUPE_LIBCUDA", filepath.Join(t.TempDir(), "libcuda.so"))
	at, err := spread(ranks(t, `device.ranks=["cuda:5", "cpu", "cuda:1"]`))
	if err != nil || !maps.Equal(at, map[int]int{0: 5, 1: 0, 2: 1}) {
		t.Errorf("%v, %v", at, err)
	}
}

// TestRanksShareDevices: ranks of a kind share a device, however it is called.
func TestRanksShareDevices(t *testing.T) {
	d, err := OpenSet(ranks(t, `device.ranks=["cpu", "auto", "cpu"]`))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if of := d.OfRanks(); len(d.opened) != 1 || len(of) != 3 || of[0] != d.opened[0] || of[1] != of[0] || of[2] != of[0] ||
		d.Names() != "cpu" {
		t.Errorf("%+v", d)
	}
}

// TestOpenIsOne: a single device cannot be had of several.
func TestOpenIsOne(t *testing.T) {
	_, err := Open(ranks(t, `device.ranks=["cpu", "auto", "cuda"]`))
	if err == nil || !strings.Contains(err.Error(), "device.ranks: ranks 0 and 2 compute on cpu and cuda") {
		t.Errorf("error %v", err)
	}
	d, err := Open(ranks(t, `device.ranks=["cpu", "auto", "cpu"]`))
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}
