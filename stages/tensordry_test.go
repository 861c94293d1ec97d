package stages_test

import (
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// dryStep records the passes of a microbatch on one rank.
func dryStep(t *testing.T, cfg stages.Config, chunk stages.ChunkSpec, size int, sequence bool) (forward, backward *tensorops.List,
	memory int64) {
	t.Helper()
	m := newModel(t, cfg)
	dry := tensorops.NewDryStream()
	o := stages.Options{Optimizer: adamw, Tensor: stages.TensorParallel{Sequence: sequence}}
	if size > 1 {
		o.Tensor.Group = tensorops.DryGroup{Members: size}
	}
	s, err := stages.NewStage(m, dry, []stages.ChunkSpec{chunk}, o)
	if err != nil {
		t.Fatal(err)
	}
	mb := microbatches(cfg, 1, 2, 2)[0]
	positions := cfg.Context
	if sequence {
		positions /= size
	}
	forward, backward = dry.NewList(), dry.NewList()
	x := forward.Alloc(tensorops.Float32, mb.Sequences, positions, cfg.Hidden)
	y := stages.Only(s.Forward(forward, 0, &mb, x))
	s.Backward(backward, 0, mb.Index, y)
	for _, l := range []*tensorops.List{forward, backward} {
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return forward, backward, dry.Memory().Peak
}

// What ranks send for a decoder layer: in the forward two sums of the residual stream, in the
// backward two more. Sequence parallelism sends the same as halves of them, and gathers anew in
// the backward what it has not kept.
func TestTensorParallelTraffic(t *testing.T) {
	cfg := stages.Config{Family: stages.Llama, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 64, Context: 8, Vocab: 19, RopeTheta: 1000}
	layer := stages.ChunkSpec{First: 1, Last: 2}
	stream := int64(2*cfg.Context*cfg.Hidden) * 4 // bytes of the residual stream, whole
	for _, size := range []int64{2, 4} {
		part := stream * (size - 1) / size
		for _, c := range []struct {
			sequence          bool
			forward, backward tensorops.Traffic
		}{
			{false, tensorops.Traffic{Collectives: 2, Bytes: 2 * 2 * part}, tensorops.Traffic{Collectives: 2, Bytes: 2 * 2 * part}},
			{true, tensorops.Traffic{Collectives: 4, Bytes: 4 * part}, tensorops.Traffic{Collectives: 6, Bytes: 6 * part}},
		} {
			forward, backward, _ := dryStep(t, cfg, layer, int(size), c.sequence)
			if f, b := forward.Traffic(), backward.Traffic(); f != c.forward || b != c.backward {
				t.Errorf("%d ranks, sequence %v: %+v and %+v, want %+v and %+v", size, c.sequence, f, b, c.forward, c.backward)
			}
		}
	}
}

// A rank has less of everything: weights and state by the size of the group, and with sequence
// parallelism the activations too.
func TestTensorParallelMemory(t *testing.T) {
	cfg := stages.Config{Family: stages.Llama, Layers: 2, Hidden: 256, Heads: 8, KVHeads: 8, FFN: 1024, Context: 64, Vocab: 1024,
		RopeTheta: 1000}
	chunk := stages.ChunkSpec{First: 1, Last: 3}
	_, _, whole := dryStep(t, cfg, chunk, 1, false)
	before := whole
	for _, c := range []struct {
		size     int
		sequence bool
		most     float64 // of the whole's memory
	}{{2, false, 0.56}, {2, true, 0.54}, {4, false, 0.34}, {4, true, 0.30}} {
		_, _, part := dryStep(t, cfg, chunk, c.size, c.sequence)
		t.Logf("%d ranks, sequence %v: %d of %d bytes", c.size, c.sequence, part, whole)
		if float64(part) > c.most*float64(whole) || part >= before {
			t.Errorf("%d ranks, sequence %v: a rank has %d bytes of %d, before %d", c.size, c.sequence, part, whole, before)
		}
		before = part
	}
	m := newModel(t, cfg)
	var sum int64
	for rank := range 4 {
		n, err := m.ShardParameters([]stages.ChunkSpec{chunk}, rank, 4)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	norms := int64(4 * cfg.Hidden)
	if want := m.ParametersOf([]stages.ChunkSpec{chunk}) + 3*norms; sum != want {
		t.Errorf("the ranks have %d parameters together, want %d", sum, want)
	}
}

// Between the beginning of a collective of the backward and its end stand products.
func TestTensorParallelOverlaps(t *testing.T) {
	for name, cfg := range splitModels {
		for _, sequence := range []bool{false, true} {
			_, backward, _ := dryStep(t, cfg, stages.ChunkSpec{First: 1, Last: 2}, 2, sequence)
			begun, products, overlapped := 0, 0, 0
			for i := range backward.Ops() {
				switch o := &backward.Ops()[i]; {
				case o.Kind == tensorops.KindCollective && o.Has(tensorops.FlagLater):
					begun, products = begun+1, 0
				case o.Kind == tensorops.KindMatMul, o.Kind == tensorops.KindGroupedMatMul, o.Kind == tensorops.KindGroupedWeightGrad:
					products++
				case o.Kind == tensorops.KindAwait && o.Await().Number == 0:
					t.Errorf("%s, sequence %v: it waits for all collectives", name, sequence)
				case o.Kind == tensorops.KindAwait:
					if overlapped++; products < 2 {
						t.Errorf("%s, sequence %v: %d products while collective %d goes on", name, sequence, products, overlapped)
					}
				}
			}
			want := 2
			if sequence { // what the weights' gradients need is gathered beside the input's
				want = 4
			}
			if begun != want || overlapped != want {
				t.Errorf("%s, sequence %v: %d collectives are begun and %d awaited, want %d", name, sequence, begun, overlapped, want)
			}
		}
	}
}
