package plan_test

import (
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// expertsText is the start of a configuration with experts.
const expertsText = `
run = {steps = 2, eval_batches = 1}
data = {train = ["../../testdata/troupe.txt"]}
batch = {sequences = 16, microbatch = 2}
[model]
family = "qwen3_moe"
layers = 1
hidden = 64
context = 32
vocab = 256
heads = 4
kv_heads = 4
ffn = 64
experts = 16
experts_per_token = 2
expert_ffn = 96
`

// TestPacksOfExpertsGiveWay: in bfloat16 the matrices of experts are only packed if they fit below device.memory_gib, and linear layers
// keep their packed forms.
func TestPacksOfExpertsGiveWay(t *testing.T) {
	if !cpu.MultipliesBF16("") {
		t.Skip("the kernels here pack nothing in bfloat16")
	}
	sets := []string{"device.dtype=bfloat16"}
	bytesOf := func(limit int64) (bytes int64) {
		own := sets
		if limit > 0 {
			own = append(own[:len(own):len(own)], fmt.Sprintf("device.memory_gib=%.12f", float64(limit)/(1<<30)))
		}
		cfg, p := forecastPlan(t, expertsText, own...)
		all, err := p.MemoryBytes()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.CheckMemory(nil); err != nil {
			t.Errorf("a limit of %d bytes: %v", limit, err)
		}
		takes(t, cfg, p)
		return all[0]
	}
	const packs = 4 * 16 * 3 * 64 * 96 // at least: they end with padding
	with := bytesOf(0)
	if same := bytesOf(with + 1); same != with {
		t.Errorf("%d bytes, %d with a limit above", with, same)
	}
	if without := bytesOf(with - 1024); without > with-packs || without < with-2*packs {
		t.Errorf("%d bytes with packed experts, %d without, which have %d or more", with, without, packs)
	}
}
