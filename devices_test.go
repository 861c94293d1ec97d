package troupe

import (
	"errors"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// named is a device of which only its names are asked, and its limit.
type named struct {
	Device
	name, path string
	threads    int
}

func (n named) Name() string { return n.name }
func (n named) Path() string { return n.path }
func (n named) Threads() int { return n.threads }

func TestDevicesSayWhatTheyAre(t *testing.T) {
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
		d := devices{opened: c.opened, ranks: c.ranks}
		if d.names() != c.names || d.path() != c.path || d.threads() != c.threads {
			t.Errorf("%q, %q, %d threads; want %q, %q, %d", d.names(), d.path(), d.threads(), c.names, c.path, c.threads)
		}
	}
}

// mixed parses a small configuration.
func mixed(t *testing.T, sets ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("mixed.toml", []byte(`
run = {steps = 2, eval_batches = 1}
model = {hidden = 32, context = 32, vocab = 1000}
data = {train = ["testdata/troupe.txt"]}
batch = {sequences = 24, microbatch = 2}
pipeline = {stages = 3}
device = {dtype = "bfloat16"}
`), append([]string{"run.out=" + t.TempDir()}, sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestRanksShareDevices: ranks of a kind share a device, however it is called.
func TestRanksShareDevices(t *testing.T) {
	d, err := openDevices(mixed(t, `device.ranks=["cpu", "auto", "cpu"]`, "device.kind=cuda"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if of := d.ofRanks(); len(d.opened) != 1 || len(of) != 3 || of[0] != d.opened[0] || of[1] != of[0] || of[2] != of[0] || d.names() != "cpu" {
		t.Errorf("%+v", d)
	}
}

// TestMissingGPU: one that is asked for and not there is an error at the key that asks.
func TestMissingGPU(t *testing.T) {
	t.Setenv("TROUPE_LIBCUDA", "/nowhere/libcuda.so")
	for _, c := range []struct {
		sets []string
		at   string
	}{
		{[]string{"device.kind=cuda"}, "--set device.kind=cuda: device.kind: "},
		{[]string{`device.ranks=["cpu", "cuda", "cpu"]`}, `--set device.ranks=["cpu", "cuda", "cpu"]: device.ranks: `},
		{[]string{"device.kind=cuda", `device.ranks=["cuda", "cuda", "cuda"]`}, `--set device.ranks=["cuda", "cuda", "cuda"]: device.ranks: `},
	} {
		cfg := mixed(t, c.sets...)
		run, err := Start(t.Context(), cfg, Options{})
		if err == nil {
			run.Kill()
			_, err = run.Wait()
			t.Fatalf("%q: it began, and ended with %v", c.sets, err)
		}
		for _, err := range []error{err, Check(cfg)} {
			if !errors.Is(err, cuda.ErrUnavailable) || !strings.HasPrefix(err.Error(), c.at) {
				t.Errorf("%q: error %v, want ErrUnavailable at %s", c.sets, err, c.at)
			}
		}
	}
}

// TestOpenDeviceIsOne: a single device cannot be had of several.
func TestOpenDeviceIsOne(t *testing.T) {
	_, err := OpenDevice(mixed(t, `device.ranks=["cpu", "auto", "cuda"]`))
	if err == nil || !strings.Contains(err.Error(), "device.ranks: ranks 0 and 2 compute on cpu and cuda") {
		t.Errorf("error %v", err)
	}
	d, err := OpenDevice(mixed(t, `device.ranks=["cpu", "auto", "cpu"]`))
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// TestMixedPlan: the memory that a rank's tensors are held against is its device's.
func TestMixedPlan(t *testing.T) {
	p, err := newPlan(mixed(t, `device.ranks=["cuda", "cpu", "cuda"]`), 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := p.memoryBytes()
	if err != nil {
		t.Fatal(err)
	}
	gpu, host := bytes[0]+bytes[2], bytes[1]+p.checkpointBytes(p.model.Config.Parameters())
	for _, c := range []struct {
		gpu, host int64
		refusal   string
	}{
		{gpu, host, ""},
		{0, 0, ""}, // neither is known
		{gpu - 1, host, "on the GPU, which has"},
		{gpu, host - 1, "this machine has"},
		{0, host - 1, "this machine has"},
		{gpu - 1, 0, "on the GPU, which has"},
	} {
		SetFreeMemory(t, c.host)
		err := p.checkMemory(c.gpu)
		if (err != nil) != (c.refusal != "") || err != nil && (!errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%d bytes on the GPU and %d in the machine: error %v, want %q", c.gpu, c.host, err, c.refusal)
		}
	}
	SetFreeMemory(t, 0)
	whole, err := newPlan(mixed(t, "device.kind=cuda"), 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.checkMemory(bytes[0]); !errors.Is(err, ErrMemory) {
		t.Errorf("three ranks where one has room: %v", err)
	}
}
