package device

import (
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
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
	for _, c := range []struct {
		opened      []Device
		ranks       []int
		names, path string
		threads     int
	}{
		{[]Device{host}, []int{0, 0}, "cpu", "avx2", 8},
		{[]Device{gpu}, []int{0}, "cuda", "cuda-sm_90", 1},
		{[]Device{gpu, host}, []int{0, 1}, "cuda, cpu", "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)", 8},
		{[]Device{host, gpu}, []int{0, 1, 1, 1, 0, 1}, "cpu, cuda", "cpu-avx2 (ranks 0, 4), cuda-sm_90 (ranks 1-3, 5)", 8},
	} {
		d := &Set{opened: c.opened, ranks: c.ranks}
		if d.Names() != c.names || d.Path() != c.path || d.Threads() != c.threads {
			t.Errorf("%q, %q, %d threads; want %q, %q, %d", d.Names(), d.Path(), d.Threads(), c.names, c.path, c.threads)
		}
	}
}

// TestRanksShareDevices: ranks of a kind share a device, however it is called.
func TestRanksShareDevices(t *testing.T) {
	d, err := OpenSet(ranks(t, `device.ranks=["cpu", "auto", "cpu"]`))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if of := d.OfRanks(); len(d.opened) != 1 || len(of) != 3 || of[0] != d.opened[0] || of[1] != of[0] || of[2] != of[0] || d.Names() != "cpu" {
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
