package rundir_test

import (
	"context"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/stages"
)

// TestFused: parameters that a model's files have in one tensor are joined in a checkpoint, with
// their optimizer state, and found in it again.
func TestFused(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: stages.Phi3, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 6, Context: 4, Vocab: 5,
		RopeTheta: 1e4})
	must(t, err)
	ckpt := writtenAndRead(t, m)
	const qkv = "model.layers.0.self_attn.qkv_proj.weight"
	if info, ok := ckpt.Model().Info(qkv); !ok || !slices.Equal(info.Shape, []int{16, 8}) {
		t.Errorf("%s has the shape %v, want 16 rows of 8", qkv, info.Shape)
	}
	if names := ckpt.Optimizer().Names(); !slices.Contains(names, "m."+qkv) || len(names) != len(ckpt.Model().Names()) {
		t.Errorf("the optimizer's tensors are %q", names)
	}
}

// TestDivided: a parameter that a model's files have in several tensors is divided in a checkpoint, with its optimizer
// state, and found in it again.
func TestDivided(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: stages.Qwen3MoE, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 6, Context: 4,
		Vocab: 5, RopeTheta: 1e4, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 5}})
	must(t, err)
	ckpt := writtenAndRead(t, m)
	for name, shape := range map[string][]int{"gate_proj": {5, 8}, "up_proj": {5, 8}, "down_proj": {8, 5}} {
		for _, e := range []string{"0", "2"} {
			full := "model.layers.0.mlp.experts." + e + "." + name + ".weight"
			if info, ok := ckpt.Model().Info(full); !ok || !slices.Equal(info.Shape, shape) {
				t.Errorf("%s has the shape %v, want %v", full, info.Shape, shape)
			}
			if _, ok := ckpt.Optimizer().Info("m." + full); !ok {
				t.Errorf("m.%s is missing", full)
			}
		}
	}
}

// TestSpread: parameters whose elements are spread over a tensor of the model's files are put together in a checkpoint, with their
// optimizer state, and found in it again.
func TestSpread(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: stages.GPTOSS, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 5, Context: 4, Vocab: 5,
		RopeTheta: 1e4, AttentionBias: true, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 5, Renormalize: true}})
	must(t, err)
	ckpt := writtenAndRead(t, m)
	const at = "model.layers.0.mlp.experts."
	for name, shape := range map[string][]int{"gate_up_proj": {3, 8, 10}, "gate_up_proj_bias": {3, 10}, "down_proj": {3, 5, 8},
		"down_proj_bias": {3, 8}} {
		info, ok := ckpt.Model().Info(at + name)
		if _, both := ckpt.Optimizer().Info("m." + at + name); !ok || !both || !slices.Equal(info.Shape, shape) {
			t.Errorf("%s has the shape %v, want %v", name, info.Shape, shape)
		}
	}
	// Expert 1, input 2, output 3 of up: column 7 of row 2.
	for _, p := range m.Params {
		if p.Name != at+"up_proj.weight" {
			continue
		}
		var got [1]float32
		must(t, ckpt.Model().Float32At(at+"gate_up_proj", got[:], 1*80+2*10+7))
		if want := float32(100*p.Index + 1*40 + 3*8 + 2); got[0] != want {
			t.Errorf("the element is %g, want %g", got[0], want)
		}
	}
}

// writtenAndRead writes a checkpoint of a model, and compares what is read from it with what was written.
func writtenAndRead(t *testing.T, m *stages.Model) *checkpoint.Checkpoint {
	t.Helper()
	out := memoryDir(t)
	fsys, err := checkpoint.OpenFS(out)
	must(t, err)
	t.Cleanup(func() { must(t, fsys.Close()) })
	store, err := checkpoint.OpenStore(fsys, ".")
	must(t, err)
	s, err := rundir.NewSaver(store, 0, []byte("# a run's"), m.Config, nil, rundir.Kept{})
	must(t, err)
	s.SyncMetrics = func() error { return nil }
	var parts []stages.Saved
	for _, p := range m.Params {
		for _, part := range []string{"", "m"} {
			name := p.Name
			if part != "" {
				name = part + "." + name
			}
			v := stages.Saved{Name: name, Part: part, Index: p.Index, Shape: p.Shape, Data: make([]float32, p.Len())}
			for i := range v.Data {
				v.Data[i] = float32(100*p.Index + i + len(part))
			}
			parts = append(parts, v)
		}
	}
	slices.Reverse(parts)
	dir, err := s.Write(context.Background(), trainstate.State{Step: 1}, parts, false)
	must(t, err)
	ckpt, err := checkpoint.Open(dir)
	must(t, err)
	t.Cleanup(func() { must(t, ckpt.Close()) })
	must(t, plan.CheckWeights(ckpt, m, func(*stages.Param) []string { return []string{"m"} }))
	read := plan.Weights(ckpt)
	for _, p := range m.Params {
		for _, part := range []string{"", "m"} {
			got := make([]float32, p.Len())
			must(t, read(p, part, got))
			for i, v := range got {
				if want := float32(100*p.Index + i + len(part)); v != want {
					t.Fatalf("%s, part %q: number %d is %g, want %g", p.Name, part, i, v, want)
				}
			}
		}
	}
	return ckpt
}
