package plan_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

var (
	qwenExperts = stages.Config{Family: stages.Qwen3MoE, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 6, Context: 16, Vocab: 256,
		RopeTheta: 10000, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 5, Renormalize: true}}
	mixtralExperts = stages.Config{Family: stages.Mixtral, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 6, Context: 16, Vocab: 256,
		RopeTheta: 10000, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 6, Renormalize: true}}
	gptOSS = stages.Config{Family: stages.GPTOSS, Layers: 1, Hidden: 64, Heads: 2, KVHeads: 1, FFN: 32, Context: 16, Vocab: 256,
		RopeTheta: 10000, AttentionBias: true, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 32, Renormalize: true}}
)

// drawnWeights are numbers that MXFP4 has exactly, the same on every call.
func drawnWeights(m *stages.Model) map[string][]float32 {
	draw, all := rand.New(rand.NewPCG(1, 2)), make(map[string][]float32)
	for _, p := range m.Params {
		v := make([]float32, p.Len())
		for i := range v {
			v[i] = []float32{0, 0.5, -1, 1.5, 2, -3, 4, 6}[draw.IntN(8)]
		}
		all[p.Name] = v
	}
	return all
}

// filesOf are the tensors of a model's files. As other programs write them where other is set.
func filesOf(m *stages.Model, of map[string][]float32, other bool) files {
	f := make(files)
	add := func(s stages.StoredPart, v []float32) {
		n := 1
		for _, d := range s.Shape {
			n *= d
		}
		numbers := make([]float32, n)
		if was, ok := f[s.Name]; ok {
			_ = safetensors.DecodeFloat32(numbers, "F32", was.Data)
		}
		stages.Place(s, numbers, v)
		f[s.Name] = safetensors.Tensor{Name: s.Name, DType: "F32", Shape: s.Shape, Data: safetensors.EncodeFloat32(numbers)}
	}
	for _, p := range m.Params {
		if other && p.Other != nil {
			add(*p.Other, of[p.Name])
			continue
		}
		for _, part := range p.StoredParts() {
			add(part, of[p.Name])
		}
	}
	if !other {
		return f
	}
	for _, p := range m.Params {
		if p.Other == nil || !p.Other.MXFP4 {
			continue
		}
		was, ok := f[p.Other.Name]
		if !ok {
			continue // done with the first of its parameters
		}
		codes, scales, codesShape, scalesShape := p.Other.MXFP4Tensors()
		values, _ := safetensors.Float32s("F32", was.Data)
		packed := make([]byte, len(values)/2)
		for i, v := range values {
			code := slices.Index([]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}, float32(math.Abs(float64(v))))
			if v < 0 {
				code |= 8
			}
			packed[i/2] |= byte(code << (4 * (i % 2)))
		}
		delete(f, p.Other.Name)
		f[codes] = safetensors.Tensor{Name: codes, DType: "U8", Shape: codesShape, Data: packed}
		ones := slices.Repeat([]byte{127}, len(values)/stages.MXBlock)
		f[scales] = safetensors.Tensor{Name: scales, DType: "U8", Shape: scalesShape, Data: ones}
	}
	return f
}

// TestOtherExpertFiles: the experts of a model are the same in the files of every program, whole and in parts.
func TestOtherExpertFiles(t *testing.T) {
	for _, c := range []stages.Config{qwenExperts, mixtralExperts, gptOSS} {
		m, err := stages.NewModel(c)
		must(t, err)
		want := drawnWeights(m)
		for _, other := range []bool{false, true} {
			ckpt := openDir(t, directory(t, c, filesOf(m, want, other), nil))
			must(t, plan.CheckWeights(ckpt, m, nil))
			read := plan.Weights(ckpt)
			for _, p := range m.Params {
				got := make([]float32, p.Len())
				must(t, read(p, "", got))
				if !slices.Equal(got, want[p.Name]) {
					t.Errorf("%s, other %v: %s has other weights", c.Family, other, p.Name)
				}
				part, first, last := *p, p.Len()/3, p.Len()-p.Len()/5
				part.Slice, part.Shape = p.Slice.Range(first, last), []int{last - first}
				got = make([]float32, last-first)
				must(t, read(&part, "", got))
				if !slices.Equal(got, want[p.Name][first:last]) {
					t.Errorf("%s, other %v: a part of %s has other weights", c.Family, other, p.Name)
				}
				if usual := plan.Usual(ckpt, p); usual != (!other || p.Other == nil) {
					t.Errorf("%s, other %v: %s is in its usual tensors: %v", c.Family, other, p.Name, usual)
				}
			}
		}
	}
}

// TestMXFP4Refused: files that contradict the model or themselves are refused with the names of the file and the tensor.
func TestMXFP4Refused(t *testing.T) {
	const gate, down = "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj"
	for name, c := range map[string]struct {
		change func(f files, c *stages.Config)
		want   []string
	}{
		"no scales": {func(f files, _ *stages.Config) { delete(f, down+"_scales") }, []string{down + `_scales" is missing`}},
		"codes of another type": {func(f files, _ *stages.Config) {
			x := f[gate+"_blocks"]
			x.DType = "I8"
			f[x.Name] = x
		}, []string{"model.safetensors", gate + `_blocks" has type I8; MXFP4 has U8`}},
		"codes of another shape": {func(f files, _ *stages.Config) {
			x := f[gate+"_blocks"]
			x.Shape = []int{3, 64, 1, 32}
			f[x.Name] = x
		}, []string{gate + `_blocks" has shape [3 64 1 32], but the model needs [3 64 2 16]`}},
		"scales too few": {func(f files, _ *stages.Config) {
			x := f[down+"_scales"]
			x.Shape, x.Data = []int{3, 32, 1}, x.Data[:96]
			f[x.Name] = x
		}, []string{down + `_scales" has shape [3 32 1], but the model needs [3 64 1]`}},
		"rows that are no blocks": {func(f files, c *stages.Config) {
			c.FFN, c.Experts.Width = 40, 40
			delete(f, gate+"_blocks")
			delete(f, gate+"_scales")
			f.set(gate, "F32", 3, 64, 80)
			f.set(gate+"_bias", "F32", 3, 80)
		},
			[]string{down + `_blocks" has blocks of 32 numbers, but the rows of the model's matrices have 40`}},
		"both forms": {func(f files, _ *stages.Config) { f.set(down, "F32", 3, 32, 64) }, []string{"does not use 2 of", down + "_blocks"}},
		"no number": {func(f files, _ *stages.Config) { f[gate+"_scales"].Data[5] = 255 },
			[]string{"model.safetensors", gate + "_blocks", "the scale of block 5 is 255"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := stages.NewModel(gptOSS)
			must(t, err)
			f, cfg := filesOf(m, drawnWeights(m), true), gptOSS
			c.change(f, &cfg)
			m, err = stages.NewModel(cfg)
			must(t, err)
			ckpt := openDir(t, directory(t, cfg, f, nil))
			err = plan.CheckWeights(ckpt, m, nil)
			for _, p := range m.Params {
				if err == nil {
					err = plan.Weights(ckpt)(p, "", make([]float32, p.Len()))
				}
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}
