package stages_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// frozenModels have adapters on linear layers in both orders of their dimensions, with inputs that tensor parallelism cuts within
// blocks of QuantBlock.
var frozenModels = map[string]stages.Config{
	"gpt2": {Family: stages.GPT2, Layers: 2, Hidden: 72, Heads: 4, KVHeads: 4, FFN: 150, Context: 8, Vocab: 19, Tie: true,
		Adapter: &stages.Adapter{Rank: 3, Alpha: 1, Targets: []string{stages.AllLinear}}},
	"llama": {Family: stages.Llama, Layers: 1, Hidden: 72, Heads: 4, KVHeads: 1, FFN: 150, Context: 8, Vocab: 21, RopeTheta: 1000,
		AttentionBias: true, MTPLayers: 1, MTPWeight: 0.3, Adapter: &stages.Adapter{Rank: 3, Alpha: 6,
			Targets: []string{".*_proj|lm_head"}, Save: []string{"input_layernorm"}}},
}

// roundedWeights are largeWeights with the frozen matrices rounded to a type by a copy of each whole matrix on a device.
func roundedWeights(dev tensorops.Device, of tensorops.DType) stages.Source {
	return stages.Sliced(func(p *stages.Param, part string, dst []float32) error {
		if err := largeWeights(p, part, dst); err != nil || part != "" || !p.Frozen || len(p.Whole) < 2 || strings.Contains(p.Name, "wpe") {
			return err
		}
		dtype, rows, cols := of, p.Whole[0], p.Whole[1]
		for _, outer := range []string{"wte", "embed_tokens", "lm_head"} {
			if strings.Contains(p.Name, outer) {
				dtype = tensorops.BFloat16
			}
		}
		turn := func() {}
		if strings.HasPrefix(p.Name, "transformer.h.") { // GPT-2 stores [in, out]
			was := slices.Clone(dst)
			for i := range rows {
				for j := range cols {
					dst[j*rows+i] = was[i*cols+j]
				}
			}
			turn = func() {
				was := slices.Clone(dst)
				for i := range rows {
					for j := range cols {
						dst[j*rows+i] = was[i*cols+j]
					}
				}
			}
			rows, cols = cols, rows
		}
		s := dev.NewStream("rounding")
		defer s.Close()
		l := s.NewList()
		wide, low := l.Alloc(tensorops.Float32, rows, cols), l.Alloc(dtype, rows, cols)
		l.Upload(wide, tensorops.HostBytes(dst))
		l.Copy(low, wide)
		l.Copy(wide, low)
		l.Fetch(tensorops.HostBytes(dst), wide)
		err := tensorops.Run(s, l)
		turn()
		return err
	})
}

// A base in few bytes trains adapters as a float32 base of the same numbers does: to the bit, on one rank; and on the ranks of a tensor
// group up to rounding.
func TestFrozenDType(t *testing.T) {
	for name, cfg := range frozenModels {
		for _, of := range []tensorops.DType{tensorops.BFloat16, tensorops.Int8, tensorops.NF4} {
			t.Run(fmt.Sprintf("%s/%v", name, of), func(t *testing.T) {
				m := newModel(t, cfg)
				mbs := microbatches(cfg, 3, 4, 2)
				mbs[0].Recompute = true
				o := stages.Options{Seed: 5, Optimizer: adamw}
				exact := ref.New()
				t.Cleanup(exact.Close)
				for _, dev := range []tensorops.Device{exact, newDevice(t, 2)} {
					rounded := newTeam(t, dev, m, 1, nil, o)
					rounded.each(func(r *teamRank) error { return r.stage.Load(roundedWeights(dev, of), false) })
					want, losses := rounded.grads(mbs, false)
					low := o
					low.FrozenDType = of
					got, gotLosses := newTeam(t, dev, m, 1, nil, low).grads(mbs, false)
					if !slices.Equal(gotLosses, losses) || !maps.EqualFunc(got, want, slices.Equal[[]float64]) {
						t.Errorf("%s: losses %v, in float32 %v; the gradient is off by %g", dev.Name(), gotLosses, losses,
							apart(together(got), together(want)))
					}
					if dev != exact {
						continue
					}
					for _, size := range []int{2, 4} {
						got, gotLosses := newTeam(t, dev, m, size, []int{2}, low).grads(mbs, true)
						compare(t, fmt.Sprintf("%d ranks", size), got, want, gotLosses, losses, 1e-7)
					}
				}
			})
		}
	}
}

// A frozen weight takes the bytes of its type, also while it is loaded, and the forecast knows the bytes of loading.
func TestFrozenBytes(t *testing.T) {
	cfg := stages.Config{Family: stages.Llama, Layers: 2, Hidden: 1024, Heads: 4, KVHeads: 4, FFN: 2048, Context: 8, Vocab: 64,
		RopeTheta: 1000,
		Adapter:   &stages.Adapter{Rank: 1, Alpha: 1, Targets: []string{"q_proj"}}}
	m := newModel(t, cfg)
	linears := 2 * (4*1024*1024 + 3*1024*2048)
	for of, bytes := range map[tensorops.DType]float64{tensorops.BFloat16: 2, tensorops.Int8: 1.0625, tensorops.NF4: 0.5625} {
		dry := tensorops.NewDryStream()
		o := stages.Options{Optimizer: adamw, FrozenDType: of}
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{First: 0, Last: len(m.Symbols())}}, o)
		if err != nil {
			t.Fatal(err)
		}
		const others = 600_000 // embedding, head, adapters
		if held := float64(dry.Memory().InUse) - bytes*float64(linears); held < 0 || held > others {
			t.Errorf("%v: %.0f bytes beside the weights of linear layers", of, held)
		}
		if err := s.DryLoad(); err != nil {
			t.Fatal(err)
		}
		forecast := dry.Memory().Taken
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		dev := newDevice(t, 2)
		stream := dev.NewStream("loading")
		if s, err = stages.NewStage(m, stream, []stages.ChunkSpec{{First: 0, Last: len(m.Symbols())}}, o); err != nil {
			t.Fatal(err)
		}
		if err := s.Load(stages.InitWeights(1), false); err != nil {
			t.Fatal(err)
		}
		if taken := dev.Memory().Taken; taken != forecast || float64(taken) > bytes*float64(linears)+others+5<<20 {
			t.Errorf("%v: loading took %d bytes, forecast were %d", of, taken, forecast)
		}
		// No checkpoint or copy has other numbers than the base's file.
		l := stream.NewList()
		s.CopyWeights(l, func(p int) []float32 { return make([]float32, m.Params[p].Len()) })
		if err := tensorops.Run(stream, l); (err == nil) != (of == tensorops.BFloat16) {
			t.Errorf("%v: copied: %v", of, err)
		}
		stream.Close()
	}
}

// A source that fails in the middle of a weight names it.
func TestFrozenLoadFails(t *testing.T) {
	m := newModel(t, frozenModels["llama"])
	dev := newDevice(t, 1)
	stream := dev.NewStream("failing")
	defer stream.Close()
	s, err := stages.NewStage(m, stream, []stages.ChunkSpec{{First: 0, Last: len(m.Symbols())}}, stages.Options{Optimizer: adamw,
		FrozenDType: tensorops.NF4})
	if err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut short")
	err = s.Load(func(p *stages.Param, part string, dst []float32) error {
		if strings.Contains(p.Name, "down_proj.weight") {
			return cut
		}
		return stages.InitWeights(1)(p, part, dst)
	}, false)
	if !errors.Is(err, cut) || !strings.Contains(err.Error(), "load model.layers.0.mlp.down_proj.weight") {
		t.Errorf("%v", err)
	}
}
