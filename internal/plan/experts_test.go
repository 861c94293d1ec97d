package plan_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestExpertGroupsRefused: groups that cannot share the experts are refused at their key.
func TestExpertGroupsRefused(t *testing.T) {
	for _, c := range []struct {
		sets []string // beside two replicas
		want []string
	}{
		{[]string{"model.family=qwen3_moe", "parallel.expert=2"}, nil},
		{[]string{"model.family=gpt_oss", "parallel.expert=2"}, nil},
		{[]string{"model.family=qwen3_moe", "parallel.expert=2", "parallel.zero=3"}, nil},
		{[]string{"model.family=qwen3_moe", "model.experts=3", "parallel.expert=2"},
			[]string{"parallel.expert", "does not divide model.experts = 3"}},
		{[]string{"model.family=llama", "parallel.expert=2"}, []string{"parallel.expert"}},
		{[]string{"model.family=qwen3_moe", "parallel.context=2", "parallel.expert=4"}, nil},
		{[]string{"model.family=gpt_oss", "parallel.context=2"}, nil},
		{[]string{"model.family=qwen3_moe", "parallel.context=2", "parallel.expert=3"},
			[]string{"parallel.expert", "does not divide the 4 ranks with the same layers"}},
		{[]string{"model.family=deepseek_v3", "parallel.context=2"}, []string{"parallel.context", "latent attention"}},
		{[]string{"model.family=qwen3_moe", "device.kind=cuda"}, nil},
		{[]string{"model.family=deepseek_v3", "pipeline.stages=2", `device.ranks=["cpu", "cuda"]`}, nil},
		{[]string{"model.family=qwen3_moe", "parallel.expert=2", "pipeline.stages=2", `device.ranks=["cpu", "cuda"]`},
			[]string{"parallel.expert", "2 ranks share experts", "stage 1 is on a GPU", "leave expert out", "device.ranks"}},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "parallel.data=2"}, c.sets...), c.want)
	}
}

// TestExpertOverlapRefused: passes overlap in pairs, which the schedule or the own table must have.
func TestExpertOverlapRefused(t *testing.T) {
	table := func(text string) string {
		path := filepath.Join(t.TempDir(), "own.csv")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return "pipeline.schedule=" + path
	}
	one := []string{"pipeline.stages=1", "batch.sequences=4", "batch.microbatch=1"}
	for _, c := range []struct {
		sets []string
		want []string
	}{
		{[]string{"pipeline.stages=2", "pipeline.schedule=1f1b"}, nil},
		{one, nil},
		{[]string{"pipeline.stages=2", "pipeline.schedule=gpipe"}, []string{"pipeline.schedule", "gpipe has no overlapped pairs",
			"choose dualpipev, 1f1b, eager-1f1b or none"}},
		{append(one, table("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n")), nil},
		{append(one, table("0F0,0F1,0B0,0B1\n")), []string{"parallel.expert_overlap", "no overlapped pair", "OVERLAP_F_B"}},
		{append(one, table("0F0,(0F1.1;0FD1.1;0B0.1;0F1.2)OVERLAP_F_B,0B1\n")), []string{"pipeline.schedule", "has actions in parts"}},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "model.family=qwen3_moe", "parallel.data=2", "parallel.expert=2",
			"parallel.expert_overlap=true"}, c.sets...), c.want)
	}
}
