package data

import (
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// comparePacked compares packed documents, whose position_ids restart in transformers: the log-probability of the target
// at each position, and the gradients.
func (m *hfModel) comparePacked(t *testing.T, st *stages.Stage, s tensorops.Stream) {
	if len(m.Starts) == 0 {
		return
	}
	mb := stages.Microbatch{Step: 1, Sequences: m.Sequences, Positions: len(m.Tokens) / m.Sequences, Tokens: m.Tokens, Starts: m.Starts,
		Targets: m.PackedTargets, Train: true}
	_, _, own := m.gradsOf(t, st, s, mb)
	grads, worst := m.compareGrads(t, own, "packed_grad.")

	got := make([]float32, len(m.Tokens)) // one target at a time
	mb.Train, mb.Targets = false, make([]int32, len(m.Tokens))
	for i := range mb.Targets {
		mb.Targets[i] = tensorops.IgnoreTarget
	}
	for i, target := range m.PackedTargets {
		mb.Targets[i] = target
		l := s.NewList()
		st.Forward(l, 0, &mb, tensorops.Tensor{})
		if err := tensorops.Run(s, l); err != nil {
			t.Fatal(err)
		}
		sum, _ := st.Loss(0, mb.Index)
		st.Finish(0, mb.Index)
		got[i], mb.Targets[i] = float32(-sum), tensorops.IgnoreTarget
	}
	off := largestOff(got, m.want(t, "packed"))
	t.Logf("packed documents: log-probabilities off by %.1e, gradients of %d weights by at most %.1e (%s)", off, grads.count, grads.off, worst)
	if !(off <= logitsLimit) || grads.loose {
		t.Errorf("packed documents: beyond the limits of %g of the largest log-probability and %g of a gradient", logitsLimit, gradsLimit)
	}
}
