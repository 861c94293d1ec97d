package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/plan"
)

// copied returns the bytes of a checkpoint, and those that each rank copies for it.
func copied(t *testing.T, p *plan.Plan) (whole int64, copies []int64) {
	t.Helper()
	stages, err := p.CheckpointBytes()
	if err != nil {
		t.Fatal(err)
	}
	if copies, err = p.CopyBytes(); err != nil {
		t.Fatal(err)
	}
	return sum(stages), copies
}

func sum(all []int64) (n int64) {
	for _, b := range all {
		n += b
	}
	return n
}

// TestExpertZero: each level of ZeRO takes less memory if ranks share experts, and what the ranks copy for a checkpoint are all weights
// and all of their optimizer state, once.
func TestExpertZero(t *testing.T) {
	for group, says := range map[int]string{2: "of experts, the 2 ranks with the same ones do", 4: "experts are not shared"} {
		var was int64
		for zero := range 4 {
			p, err := zeroPlan(t, "model.family=qwen3_moe", "model.experts=8", "model.expert_ffn=128", "parallel.data=4",
				"batch.sequences=4", fmt.Sprint("parallel.expert=", group), fmt.Sprint("parallel.zero=", zero))
			if err != nil {
				t.Fatal(err)
			}
			bytes, err := p.MemoryBytes()
			if err != nil {
				t.Fatal(err)
			}
			if zero > 0 && bytes[0] >= was {
				t.Errorf("groups of %d take %d bytes with parallel.zero = %d, and %d with less", group, bytes[0], zero, was)
			}
			was = bytes[0]
			if text := p.DescribeZero(); zero > 0 && !strings.Contains(text, says) {
				t.Errorf("groups of %d, zero %d: %q, want %q", group, zero, text, says)
			}
			whole, copies := copied(t, p)
			if left := whole - sum(copies); left < 0 || left > 64 {
				t.Errorf("groups of %d, zero %d: the ranks copy %v bytes, want %d together", group, zero, copies, whole)
			}
			if even := whole / 4; zero == 3 && (copies[3] < even-64 || copies[3] > even) {
				t.Errorf("groups of %d: the ranks copy %v bytes, want %d each", group, copies, even)
			}
		}
	}
}
