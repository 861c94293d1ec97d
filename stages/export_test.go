package stages

import (
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// Objective is what the gradient of a chunk with all layers is the gradient of, at a loss scale of 1.
func (s *Stage) Objective(chunk, index int) float64 {
	_, f := s.find(chunk, index)
	return s.TargetLoss(chunk, index) + s.balance(f)
}

// TargetLoss is the part of it that the chunk with the head has: the main loss and the weighted losses of multi-token prediction.
func (s *Stage) TargetLoss(chunk, index int) float64 {
	_, f := s.find(chunk, index)
	st := f.states[len(f.states)-1].(*headState)
	sum, _ := st.sum(0)
	c := s.model.Config
	for k := 1; k <= c.MTPLayers; k++ {
		loss, _ := st.sum(k)
		sum += c.MTPWeight / float64(c.MTPLayers) * loss
	}
	return sum
}

// balance is the weighted balance loss and z-loss of a microbatch whose backward has not begun, on a device of float64 numbers.
// Without weights nothing is read.
func (s *Stage) balance(f *inFlight) (sum float64) {
	for i, l := range s.model.layers {
		b, ok := l.(*block)
		if !ok {
			continue
		}
		x, ok := b.ffn.(*expertFFN)
		if !ok || x.spec.balance == 0 && x.spec.zLoss == 0 {
			continue
		}
		st := f.states[i].(*blockState).ffn.(*expertState)
		runs, rows, n := 1, f.mb.Sequences*f.mb.Positions, x.spec.count
		if x.spec.bySequence {
			runs = f.mb.Sequences
		}
		scores, experts, loads := tensorops.Elements[float64](st.scores), tensorops.Elements[int32](st.experts), make([]float64, runs*n)
		for pair, e := range experts {
			loads[pair*runs/len(experts)*n+int(e)]++
		}
		if x.spec.global { // with those of the microbatches before, as if they were of this one's rows
			all := 0.0
			for e, before := range tensorops.Elements[float64](s.loads[x]) {
				loads[e] += before
				all += loads[e]
			}
			for e := range loads {
				loads[e] *= float64(len(experts)) / all
			}
		}
		for row := range rows {
			total, lse := 0.0, 0.0
			for e := range n {
				total += scores[row*n+e]
				if x.spec.zLoss != 0 {
					lse += math.Exp(tensorops.Elements[float64](st.logits)[row*n+e])
				}
			}
			for e := range n {
				sum += x.spec.balance * float64(n) * loads[row*runs/rows*n+e] * float64(runs) / float64(rows) * scores[row*n+e] / total
			}
			if lse != 0 {
				sum += x.spec.zLoss * math.Log(lse) * math.Log(lse)
			}
		}
	}
	return sum
}

// Routed is what a router has chosen for a microbatch.
type Routed struct {
	Layer, PerRow int
	Scores        []float32
	Experts       []int32
}

// Routes are those of a microbatch whose backward has not begun.
func (s *Stage) Routes(chunk, index int) (all []Routed) {
	_, f := s.find(chunk, index)
	for i, l := range s.model.layers {
		if b, ok := l.(*block); ok {
			if x, ok := b.ffn.(*expertFFN); ok {
				st := f.states[i].(*blockState).ffn.(*expertState)
				all = append(all, Routed{i, x.spec.perToken, slices.Clone(tensorops.Elements[float32](st.scores)),
					slices.Clone(tensorops.Elements[int32](st.experts))})
			}
		}
	}
	return all
}

// DepthLoss is the loss of one depth of multi-token prediction, and its targets.
func (s *Stage) DepthLoss(chunk, index, depth int) (sum, targets float64) {
	_, f := s.find(chunk, index)
	return f.states[len(f.states)-1].(*headState).sum(depth)
}

// SumGrads is what GradNorms begins with.
func (s *Stage) SumGrads(l *tensorops.List) { s.sumGrads(l) }

// WholeGrads are the gradients after GradNorms.
func (s *Stage) WholeGrads(l *tensorops.List) (out []Saved) {
	for _, h := range s.local {
		if h.param.Frozen { // it has none
			continue
		}
		v := saved(h.param, "")
		v.Data = make([]float32, h.param.Len())
		l.Fetch(tensorops.HostBytes(v.Data), h.g[h.place()])
		out = append(out, v)
	}
	return out
}

// BucketBytes is the most that one collective of parts takes.
const BucketBytes = 4 * bucketLen

// DropResidual records y = x with some numbers dropped at a site of the residual stream.
func (s *Stage) DropResidual(l *tensorops.List, mb Microbatch, y, x tensorops.Tensor, name string, p float64) {
	c := &pass{List: l, stage: s, mb: &mb}
	c.dropout(y, x, tensorops.Tensor{}, site{name, p})
}

// OwnMask is the mask of a sample for a layer of a program's own.
func (s *Stage) OwnMask(mb Microbatch, name string, p float64, sample int) tensorops.Mask {
	return (&Pass{c: &pass{stage: s, mb: &mb}, unit: &unit{name: name}}).Mask("", p, sample)
}
