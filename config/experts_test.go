package config

import (
	"strings"
	"testing"
)

// TestExperts: the keys of experts have the defaults of their family, and contradictions are refused by name.
func TestExperts(t *testing.T) {
	const text = "data.train = ['a.txt']\n"
	c := parse(t, text, "model.family=qwen3_moe", "model.hidden=64")
	if m := c.Model; m.Experts != 8 || m.ExpertsPerToken != 2 || m.ExpertFFN != m.FFN || m.AuxLossWeight != 0.001 {
		t.Errorf("%+v", m)
	}
	if m := parse(t, text, "model.family=mixtral", "model.experts=1").Model; m.ExpertsPerToken != 1 {
		t.Errorf("%+v", m)
	}
	if m := parse(t, text, "model.family=qwen3").Model; m.Experts != 0 || m.ExpertsPerToken != 0 || m.ExpertFFN != 0 {
		t.Errorf("%+v", m)
	}
	deepSeek := parse(t, text, "model.family=deepseek_v3", "model.hidden=64", "model.n_group=4", "model.topk_group=2").Model
	if m := deepSeek; m.SharedExpertFFN != m.ExpertFFN || m.FirstKDenseReplace != 1 || !m.NormTopKProb || m.RouterBiasUpdateRate != 0.001 ||
		m.QKNopeHeadDim != 16 || m.QKRopeHeadDim != 8 || m.VHeadDim != 16 || m.KVLoRARank != 64 || m.QLoRARank != 0 || m.TopKGroup != 2 {
		t.Errorf("%+v", m)
	}
	if m := parse(t, text, "model.family=qwen2_moe", "model.expert_ffn=24").Model; m.SharedExpertFFN != 24 || m.NormTopKProb {
		t.Errorf("%+v", m)
	}
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{"model.family=deepseek_v3", "model.n_group=3"}, "must divide"},
		{[]string{"model.family=deepseek_v3", "model.n_group=8"}, "must divide"},
		{[]string{"model.family=deepseek_v3", "model.n_group=4", "model.topk_group=5"}, "must be from 1 to"},
		{[]string{"model.family=deepseek_v3", "model.n_group=4", "model.topk_group=1", "model.experts_per_token=3"},
			"has 2 experts, fewer than"},
		{[]string{"model.family=deepseek_v3", "model.topk_group=1"}, "there are no groups"},
		{[]string{"model.family=deepseek_v3", "model.shared_expert_ffn=100", "model.expert_ffn=64"}, "is not a multiple of"},
		{[]string{"model.family=deepseek_v3", "model.first_k_dense_replace=4"}, "leaves no layer with experts"},
		{[]string{"model.family=qwen3_moe", "model.decoder_sparse_step=5"}, "leaves no layer with experts"},
		{[]string{"model.family=deepseek_v3", "model.head_dim=8"}, "have widths of their own"},
		{[]string{"model.family=deepseek_v3", "model.kv_heads=2"}, "each head of latent attention has keys of its own"},
		{[]string{"model.family=deepseek_v3", "model.qk_rope_head_dim=7"}, "is not even"},
		{[]string{"model.family=deepseek_v3", "model.kv_lora_rank=0"}, "is too small"},
		{[]string{"model.family=qwen2_moe", "model.shared_expert_ffn=0"}, "is too small"},
		{[]string{"model.family=qwen3_moe", "model.experts=0"}, "model.experts: 0 is too few"},
		{[]string{"model.family=llama", "model.experts=4"}, "model.experts: 4 is set, but"},
		{[]string{"model.experts_per_token=2"}, "there are no experts"},
		{[]string{"model.expert_ffn=64"}, "there are no experts"},
		{[]string{"model.family=mixtral", "model.experts=4", "model.experts_per_token=5"}, "must be from 1 to"},
		{[]string{"model.family=mixtral", "model.experts_per_token=0"}, "must be from 1 to"},
		{[]string{"model.family=qwen3_moe", "model.expert_ffn=0"}, "is too small"},
		{[]string{"model.family=mixtral", "model.expert_ffn=64"}, "in mixtral they are the same"},
		{[]string{"model.family=qwen3_moe", "model.experts=5000"}, "4096"},
	} {
		_, err := Parse("config.toml", []byte(text), c.sets, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.sets, err, c.want)
		}
	}
}
