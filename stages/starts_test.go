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

// packedModels are models of every kind of layer that sees other positions.
func packedModels() map[string]stages.Config {
	all := maps.Clone(contextModels)
	for name, cfg := range mtpModels {
		cfg.Context = 24
		all[fmt.Sprintf("mtp %d", name)] = cfg
	}
	all["sinks"] = stages.Config{Family: stages.Example, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 41, Context: 24, Vocab: 19,
		RopeTheta: 1000, NoRope: []int{1}, WindowTheta: 50, Window: 7, Full: []int{1}}
	delta := splitModels["qwen3_5_text"]
	delta.Context = 24
	all["delta"] = delta
	passing := passingModel
	passing.Context, passing.Window = 24, 7
	all["passed keys and inputs"] = passing
	for name, cfg := range all {
		cfg.Dropout = 0 // a document's place decides its random bits
		all[name] = cfg
	}
	return all
}

// documentLengths are the positions of the documents of two packed sequences of 24 positions. The second has padding.
var documentLengths = [][]int{{7, 1, 5, 3, 8}, {11, 1, 9}}

// packedAndNot returns the same documents packed, and one in each sequence.
func packedAndNot(cfg stages.Config, lengths [][]int) (packed, unpacked stages.Microbatch) {
	from := microbatches(cfg, 3, len(lengths), len(lengths))[0]
	longest, documents := 0, slices.Concat(lengths...)
	for _, n := range documents {
		longest = max(longest, n)
	}
	packed, unpacked = from, from
	packed.Starts = make([]int32, len(packed.Tokens))
	unpacked.Sequences, unpacked.Positions = len(documents), longest
	unpacked.Tokens, unpacked.Targets = make([]int32, len(documents)*longest), make([]int32, len(documents)*longest)
	for i := range unpacked.Targets {
		unpacked.Targets[i] = tensorops.IgnoreTarget
	}
	document := 0
	for s, all := range lengths {
		at, end := s*from.Positions, (s+1)*from.Positions
		for _, n := range all {
			copy(unpacked.Tokens[document*longest:], from.Tokens[at:at+n])
			copy(unpacked.Targets[document*longest:], from.Targets[at:at+n])
			for i := range n {
				packed.Starts[at+i] = int32(at - s*from.Positions)
			}
			document, at = document+1, at+n
		}
		for ; at < end; at++ {
			packed.Tokens[at], packed.Targets[at], packed.Starts[at] = 0, tensorops.IgnoreTarget, int32(at-s*from.Positions)
		}
	}
	return packed, unpacked
}

// In float64 packed documents have the losses and gradients of documents one by one, to many digits, however the
// ranks share them.
func TestPackedIsUnpacked(t *testing.T) {
	for name, cfg := range packedModels() {
		t.Run(name, func(t *testing.T) {
			dev := ref.New()
			t.Cleanup(dev.Close)
			m := newModel(t, cfg)
			o := stages.Options{Seed: 5, Optimizer: adamw}
			packed, unpacked := packedAndNot(cfg, documentLengths)
			want, losses := newTeam(t, dev, m, 1, nil, o).grads([]stages.Microbatch{unpacked}, false)
			for _, recompute := range []bool{false, true} {
				packed.Recompute = recompute
				got, gotLosses := newTeam(t, dev, m, 1, []int{1}, o).grads([]stages.Microbatch{packed}, recompute)
				compare(t, fmt.Sprintf("packed, recompute %v", recompute), got, want, gotLosses, losses, 1e-7)
			}
			for _, c := range []struct {
				context, tensor int
				sequence        bool
			}{{1, 2, false}, {1, 2, true}, {2, 1, false}, {3, 1, false}, {4, 1, false}, {2, 2, true}} {
				if m.CheckTensor(c.tensor) != nil || m.CheckContext(c.context) != nil {
					continue
				}
				o.Tensor.Sequence = c.sequence
				got, gotLosses := contextGrads(t, dev, m, c.context, c.tensor, []int{2}, o, []stages.Microbatch{packed}, false)
				compare(t, fmt.Sprintf("%+v", c), got, want, gotLosses, losses, 1e-7)
			}
		})
	}
}

// In float32 they are off by rounding.
func TestPackedGradients(t *testing.T) {
	for name, cfg := range packedModels() {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(t, 2)
			m := newModel(t, cfg)
			o := stages.Options{Seed: 5, Optimizer: adamw, Pack: true}
			packed, unpacked := packedAndNot(cfg, documentLengths)
			want, losses := newTeam(t, dev, m, 1, nil, o).grads([]stages.Microbatch{unpacked}, false)
			got, gotLosses := newTeam(t, dev, m, 1, nil, o).grads([]stages.Microbatch{packed}, false)
			compare(t, "packed", got, want, gotLosses, losses, 2e-6)
			t.Logf("the gradient is off by %.2g of its norm, the loss by %.2g of itself", apart(together(got), together(want)),
				gotLosses[0]/losses[0]-1)
		})
	}
}

// TestPackedOne: starts that say nothing change no bit.
func TestPackedOne(t *testing.T) {
	for name, cfg := range contextModels {
		dev, m := newDevice(t, 2), newModel(t, cfg)
		mbs := microbatches(cfg, 3, 4, 2)
		want, losses := newTeam(t, dev, m, 1, nil, stages.Options{Seed: 5, Optimizer: adamw}).grads(mbs, false)
		for i := range mbs {
			mbs[i].Starts = make([]int32, len(mbs[i].Tokens))
		}
		got, gotLosses := newTeam(t, dev, m, 1, nil, stages.Options{Seed: 5, Optimizer: adamw}).grads(mbs, false)
		if !slices.Equal(losses, gotLosses) || apart(together(got), together(want)) != 0 {
			t.Errorf("%s: one document in each sequence: other bits than without starts", name)
		}
	}
}

// TestStartsAreChecked: starts that are no documents are refused, and leave nothing behind.
func TestStartsAreChecked(t *testing.T) {
	cfg := contextModels["llama"]
	cfg.Context = 4
	p := newPipe(t, newDevice(t, 1), newModel(t, cfg), nil, true)
	before := p.inUse()
	for _, c := range []struct {
		starts []int32
		says   string
	}{
		{[]int32{0, 0, 0}, "3 starts"},
		{[]int32{1, 1, 1, 1}, "position 0 of sequence 0"},
		{[]int32{0, 0, -1, -1}, "starts at -1"},
		{[]int32{0, 3, 3, 3}, "position 1"},
		{[]int32{0, 1, 0, 0}, "position 2"},
		{[]int32{0, 1, 1, 2}, "position 3"},
	} {
		mb := microbatches(cfg, 1, 1, 1)[0]
		mb.Starts = c.starts
		l := p.stream[0].NewList()
		p.stages[0].Forward(l, 0, &mb)
		if err := l.Err(); !errors.Is(err, stages.ErrInput) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.starts, err, c.says)
		}
	}
	if n := p.inUse(); n != before || p.stages[0].InFlight() != 0 {
		t.Errorf("%d bytes are in use, %d before", n, before)
	}
}
