package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/stages"
)

// setFree makes the machine seem to have n bytes left.
func setFree(t *testing.T, n int64) {
	old := device.HostFreeBytes
	t.Cleanup(func() { device.HostFreeBytes = old })
	device.HostFreeBytes = func() int64 { return n }
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

// TestMixedPlan: the memory that a rank's tensors are held against is its device's.
func TestMixedPlan(t *testing.T) {
	p, err := New(mixed(t, `device.ranks=["cuda", "cpu", "cuda"]`), 1000, stages.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := p.MemoryBytes()
	if err != nil {
		t.Fatal(err)
	}
	copies, err := p.checkpointBytes()
	if err != nil {
		t.Fatal(err)
	}
	gpu, host := bytes[0]+bytes[2], bytes[1]+copies
	one := func(free int64) []device.GPU {
		return []device.GPU{{Name: "cuda:0", Ranks: []int{0, 2}, FreeBytes: free}}
	}
	for _, c := range []struct {
		gpu, host int64
		refusal   string
	}{
		{gpu, host, ""},
		{0, 0, ""}, // neither is known
		{gpu - 1, host, "on the GPU, but it has"},
		{gpu, host - 1, "this machine has"},
		{0, host - 1, "this machine has"},
		{gpu - 1, 0, "on the GPU, but it has"},
	} {
		setFree(t, c.host)
		_, err := p.CheckMemory(one(c.gpu))
		if (err != nil) != (c.refusal != "") || err != nil && (!errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%d bytes on the GPU and %d in the machine: error %v, want %q", c.gpu, c.host, err, c.refusal)
		}
	}
	setFree(t, 0)
	whole, err := New(mixed(t, "device.kind=cuda"), 1000, stages.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := whole.CheckMemory([]device.GPU{{Ranks: []int{0, 1, 2}, FreeBytes: bytes[0]}}); !errors.Is(err, ErrMemory) {
		t.Errorf("three ranks where one has room: %v", err)
	}
	// Each GPU has room for its own ranks, or not.
	most, err := whole.MemoryBytes()
	if err != nil {
		t.Fatal(err)
	}
	two := []device.GPU{{Name: "cuda:0", Ranks: []int{0, 1}, FreeBytes: most[0] + most[1]},
		{Name: "cuda:1", Ranks: []int{2}, FreeBytes: most[2]}}
	if _, err := whole.CheckMemory(two); err != nil {
		t.Error(err)
	}
	two[1].FreeBytes--
	if _, err := whole.CheckMemory(two); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "on cuda:1 (ranks [2]), but it has") {
		t.Errorf("rank 2 does not fit: error %v", err)
	}
}

// TestShortRun: a run that is cut short ends within its warm-up, and is told so.
func TestShortRun(t *testing.T) {
	for warmup, want := range map[string]string{"3": "optimizer.warmup_steps = 3 is more than run.steps = 2", "2": ""} {
		p, err := New(mixed(t, "device.kind=cpu", "optimizer.warmup_steps="+warmup), 1000, stages.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Warnings(), "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("a warm-up of %s steps: %q, want %q", warmup, got, want)
		}
	}
}
