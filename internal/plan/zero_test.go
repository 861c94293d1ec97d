package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/stages"
)

// zeroPlan is that of a model with large parameters.
func zeroPlan(t *testing.T, sets ...string) (*plan.Plan, error) {
	t.Helper()
	text := `
run = {steps = 2, eval_batches = 1}
model = {layers = 8, hidden = 128, context = 32, vocab = 256, tie_embeddings = false}
data = {train = ["../../testdata/troupe.txt"]}
batch = {sequences = 24, microbatch = 1}
`
	cfg, err := config.Parse("zero.toml", []byte(text), append(sets, "run.out="+t.TempDir()), nil)
	if err != nil {
		return nil, err
	}
	return plan.New(cfg, cfg.Model.Vocab, stages.Config{})
}

// TestZeroRefused: ZeRO-2 and 3 are refused where replicas don't come to a sum at once.
func TestZeroRefused(t *testing.T) {
	for _, c := range []struct {
		zero int
		sets []string
		want string
	}{
		{2, []string{"parallel.data=5"}, `24 microbatches a step are not divisible by parallel.data = 5`},
		{3, []string{"parallel.data=5"}, `24 microbatches a step are not divisible by parallel.data = 5`},
		{3, []string{"parallel.data=2", "device.kind=cuda", "device.dtype=bfloat16"}, `is not supported on a GPU with device.dtype = "bfloat16"`},
		{3, []string{"parallel.data=2", "model.family=mlp"}, `other layers of this family may use them`},
		{3, []string{"parallel.data=2", "pipeline.stages=2", "pipeline.post_validation=true"}, `set post_validation = false`},
	} {
		_, err := zeroPlan(t, append(c.sets, fmt.Sprintf("parallel.zero=%d", c.zero))...)
		if err == nil || !strings.Contains(err.Error(), "parallel.zero") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.sets, err, c.want)
		}
	}
}

// TestZeroIdle: where ZeRO-2 and 3 save nothing, a warning says what they take, and what would help.
func TestZeroIdle(t *testing.T) {
	for _, c := range []struct {
		zero int
		sets []string
		want string // "": they save memory
	}{
		{2, []string{"parallel.data=2"}, `pipeline.schedule = "none" and 1 chunk on each stage too many are whole at a time`},
		{2, []string{"parallel.data=2", "pipeline.stages=2", "pipeline.schedule=zb-h1"}, `pipeline.schedule = "zb-h1"`},
		{2, []string{"parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2"}, `pipeline.schedule = "interleaved"`},
		{3, []string{"parallel.data=2", "model.layers=1"}, `parallel.zero = 3 saves no memory here: with 4 microbatches for each replica`},
		{3, []string{"parallel.data=2", "model.layers=1", "batch.sequences=2", "batch.microbatch=1"},
			`parallel.zero = 3 saves no memory here: with 1 microbatch for each replica`},
		{2, []string{"parallel.data=24"}, ""},
		{1, []string{"parallel.data=2"}, ""},
	} {
		p, err := zeroPlan(t, append(c.sets, fmt.Sprintf("parallel.zero=%d", c.zero))...)
		if err != nil {
			t.Errorf("%v: %v", c.sets, err)
			continue
		}
		warnings := p.Warnings()
		if p.ZeroSaves() != (c.want == "") || len(warnings) > 1 || (len(warnings) == 0) != (c.want == "") ||
			c.want != "" && !strings.Contains(warnings[0], c.want) {
			t.Errorf("%v: %q, want %q", c.sets, warnings, c.want)
		}
	}
}

// TestZeroSaves: each step of ZeRO takes less memory on every stage.
func TestZeroSaves(t *testing.T) {
	for _, sets := range [][]string{
		{"parallel.data=24"},
		{"parallel.data=4", "pipeline.chunks=8", "pipeline.schedule=breadth-first"},
		{"parallel.data=4", "pipeline.stages=2", "pipeline.chunks=4", "pipeline.microbatch_group_size=6"},
		{"parallel.data=24", "pipeline.stages=2", "pipeline.schedule=1f1b", "model.layers=12"},
	} {
		t.Run(fmt.Sprint(sets), func(t *testing.T) {
			var was []int64
			for zero := range 4 {
				p, err := zeroPlan(t, append(sets, fmt.Sprintf("parallel.zero=%d", zero))...)
				if err != nil {
					t.Fatal(err)
				}
				bytes, err := p.MemoryBytes()
				if err != nil {
					t.Fatal(err)
				}
				for stage := range was {
					if bytes[stage] >= was[stage] {
						t.Errorf("stage %d takes %d bytes with parallel.zero = %d, and %d with less", stage, bytes[stage], zero, was[stage])
					}
				}
				if got, want := p.DescribeZero(), fmt.Sprintf("ZeRO-%d: ", zero); !strings.HasPrefix(got, want) && (zero > 0 || got != "") {
					t.Errorf("parallel.zero = %d is described as %q", zero, got)
				}
				t.Logf("zero = %d: %v, %s", zero, bytes, p.DescribeZero())
				was = bytes
			}
		})
	}
}

// TestZeroHolds: with ZeRO-3 a chunk's weights stay gathered between microbatches where that takes little more, but not
// where ZeRO-3 would then save nothing, also where a GPU's constant workspace makes it seem little.
func TestZeroHolds(t *testing.T) {
	for _, c := range []struct {
		sets  []string
		holds bool
	}{
		{[]string{"parallel.data=24", "batch.sequences=48", "model.layers=32", "pipeline.chunks=16", "pipeline.schedule=breadth-first"}, true},
		{[]string{"parallel.data=2", "batch.sequences=4", "model.context=8"}, false},
		{[]string{"parallel.data=2", "batch.sequences=4", "model.context=8", "device.kind=cuda"}, false},
	} {
		total := func(zero int) (bytes int64, is string) {
			p, err := zeroPlan(t, append(c.sets, fmt.Sprintf("parallel.zero=%d", zero))...)
			if err != nil {
				t.Fatal(err)
			}
			each, err := p.MemoryBytes()
			if err != nil {
				t.Fatal(err)
			}
			return each[0], p.DescribeZero()
		}
		one, _ := total(1)
		three, is := total(3)
		t.Logf("%q: %d bytes with zero = 1, %d with 3: %s", c.sets, one, three, is)
		if holds := strings.Contains(is, "chunk by chunk"); three >= one || holds != c.holds {
			t.Errorf("%q: %d bytes with zero = 1, %d with 3: %s", c.sets, one, three, is)
		}
	}
}
