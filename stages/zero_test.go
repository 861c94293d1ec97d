package stages_test

import (
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// With ZeRO-1 a replica has its share of the optimizer's state, and beside that what parts are copied through.
func TestZeroMemory(t *testing.T) {
	m := newModel(t, stages.Config{Family: stages.Llama, Layers: 2, Hidden: 256, Heads: 8, KVHeads: 8, FFN: 1024, Context: 64, Vocab: 1024,
		RopeTheta: 1000})
	memory := func(rank, size, zero int) int64 {
		dry := tensorops.NewDryStream()
		o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: tensorops.DryGroup{Place: rank, Members: size}, Zero: zero}}
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return dry.Memory().Peak
	}
	weights := 4 * m.Parameters()
	copied := func(size int64) (bytes int64) { // of parameters that don't lie in parts
		for _, p := range m.Params {
			if n := int64(p.Len()); n < 16<<10 || n%size > 0 {
				bytes += 4 * n
			}
		}
		return bytes
	}
	for _, size := range []int64{1, 2, 3, 4, 8} {
		for rank := range size {
			plain, shared := memory(int(rank), int(size), 0), memory(int(rank), int(size), 1)
			if size == 1 {
				if plain != shared {
					t.Errorf("alone a rank has %d bytes, and %d with ZeRO", plain, shared)
				}
				continue
			}
			exchange := min(copied(size), stages.BucketBytes) * (size + 1) / size
			want := plain - 2*weights + 2*weights/size + exchange
			if d := float64(shared-want) / float64(want); d < -0.02 || d > 0.02 {
				t.Errorf("rank %d of %d: %d bytes, plain %d, want about %d: %.1f %% off", rank, size, shared, plain, want, 100*d)
			}
		}
	}
}

// With ZeRO-3 each pass of a microbatch gathers its chunk's weights, or with HoldWeights the first of those that
// follow each other; at most two layers' are whole at once, or a chunk's.
func TestZeroGathers(t *testing.T) {
	const layers, microbatches = 8, 4
	m := newModel(t, stages.Config{Family: stages.Llama, Layers: layers, Hidden: 256, Heads: 8, KVHeads: 8, FFN: 1024, Context: 16,
		Vocab: 1024, RopeTheta: 1000})
	const ofLayer = 7 // matrices
	for _, c := range []struct {
		hold    bool
		gathers int // all_gathers of a forward of all microbatches through both chunks
		whole   int // bytes of the most weights that are whole at once
	}{
		{false, microbatches * (layers*ofLayer + 2), 2 * 4 * (4*256*256 + 3*256*1024)},
		{true, layers*ofLayer + 2, (layers / 2) * 4 * (4*256*256 + 3*256*1024)},
	} {
		dry := tensorops.NewDryStream()
		o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: tensorops.DryGroup{Members: 4}, Zero: 3, HoldWeights: c.hold}}
		half := 1 + layers/2
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Chunk: 0, Last: half}, {Chunk: 1, First: half, Last: len(m.Symbols())}}, o)
		if err != nil {
			t.Fatal(err)
		}
		parts, gathers := dry.Memory().Taken, 0
		ids := make([]int32, 16)
		var edge [microbatches]tensorops.Tensor
		for chunk := range 2 {
			for i := range microbatches {
				l := dry.NewList()
				mb := stages.Microbatch{Step: 1, Index: i, Sequences: 1, Positions: 16, Tokens: ids, Targets: ids}
				if out := s.Forward(l, chunk, &mb, edge[i]); chunk == 0 {
					edge[i] = out[0]
				}
				for _, op := range l.Ops() {
					if op.Kind == tensorops.KindCollective && op.Collective().What == tensorops.AllGather {
						gathers++
					}
				}
				if err := tensorops.Run(dry, l); err != nil {
					t.Fatal(err)
				}
				s.Finish(chunk, i)
			}
		}
		if gathers != c.gathers {
			t.Errorf("hold %v: %d all_gathers, want %d", c.hold, gathers, c.gathers)
		}
		if took := int(dry.Memory().Taken - parts); took < c.whole || float64(took) > 1.25*float64(c.whole) {
			t.Errorf("hold %v: %d bytes beside the parts, want about %d", c.hold, took, c.whole)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
