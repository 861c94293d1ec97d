package plan_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		{[]string{"model.family=qwen3_moe", "parallel.expert=2", "pipeline.stages=2", `device.ranks=["cpu", "cuda"]`}, nil},
		{[]string{"model.family=qwen3_moe", "parallel.expert=2", "parallel.zero=2", "device.kind=cuda", "device.dtype=bfloat16"}, nil},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "parallel.data=2"}, c.sets...), c.want)
	}
}

// partsOfOneLayer are a pair of a model with one layer with experts, in which the forward first has two turns.
const partsOfOneLayer = "(0F1.1;0FD1.1;0B0.1;0BD0.1;0F1.2;0FC1.2;0F1.3;0B0.2;0BC0.2;0B0.3)OVERLAP_F_B"

// TestOwnOrderOfParts: a table in parts runs in its own order, if its parts are those of the model.
func TestOwnOrderOfParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.csv")
	must(t, os.WriteFile(path, []byte("0F0,"+partsOfOneLayer+",0B1\n"), 0o644))
	for layers, says := range map[string]string{"1": "", "2": "0F1 is written in 3 parts, but this model exchanges tokens 4 times in it"} {
		p, err := muonPlan(t, "optimizer.name=adamw", "model.family=qwen3_moe", "parallel.data=2", "parallel.expert=2",
			"parallel.expert_overlap=true", "pipeline.stages=1", "batch.sequences=4", "batch.microbatch=1", "pipeline.schedule="+path,
			"model.layers="+layers)
		must(t, err)
		if got := p.Table(); got.String() != "0F0 (0F1;0B0)OVERLAP_F_B 0B1" || !slices.Equal(got.OwnTurns(0, 1), []int{0, 1, 0, 0, 1, 1}) {
			t.Errorf("the table is %v, with the turns %v", got, got.OwnTurns(0, 1))
		}
		report, err := p.CheckWorld(2)
		if says == "" && (err != nil || report.Collectives == 0) {
			t.Errorf("%s layers: %+v, %v", layers, report, err)
		}
		if says != "" && (err == nil || !strings.Contains(err.Error(), "pipeline.schedule") || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s layers: %v, want %q", layers, err, says)
		}
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
		{append(one, table("0F0,"+partsOfOneLayer+",0B1\n")), nil},
		{append(one, table("0F0,"+strings.Replace(partsOfOneLayer, "0FD1.1;0B0.1;", "0B0.1;0FD1.1;", 1)+",0B1\n")),
			[]string{"pipeline.schedule", "0FD1.1 does not stand right after part 1 of its action"}},
		{append(one, table("0F0,"+partsOfOneLayer+",0B1\n"), "parallel.data=4", "batch.sequences=8", "parallel.zero=3"), []string{
			"pipeline.schedule", "has actions in parts", "zero = 3"}},
		{append(one, table("0F0,"+partsOfOneLayer+",0B1\n"), "parallel.expert_overlap=false"), []string{"pipeline.schedule",
			"has actions in parts", "parallel.expert_overlap"}},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "model.family=qwen3_moe", "parallel.data=2", "parallel.expert=2",
			"parallel.expert_overlap=true"}, c.sets...), c.want)
	}
}
