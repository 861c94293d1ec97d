package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// distill: the cross-entropy, and the divergence between the teacher's distribution p of its likely ids and of all others together and
// the student's q, at a temperature; where asked for, the gradient of both.
func distill(op *tensorops.Op) error {
	a := op.Distill()
	stats, likely, logp, all := Values(a.Stats), ids(a.IDs), Values(a.LogP), a.Logits.Cols()
	k := a.IDs.Cols()
	clear(stats)
	for n, target := range ids(a.Targets) {
		logits := rowOf(a.Logits, n)
		if target == tensorops.IgnoreTarget {
			if a.Grad.Valid() {
				clear(rowOf(a.Grad, n))
			}
			continue
		}
		if err := checkID(n, target, all); err != nil {
			return err
		}
		scaled := make([]float64, all)
		for j, v := range logits {
			scaled[j] = v / a.Temperature
		}
		lse, norm := logSumExp(logits), logSumExp(scaled)
		outcome := make([]int, all) // of each id; k is that of all others
		for j := range outcome {
			outcome[j] = k
		}
		var logq, p []float64 // of the outcomes
		for i, id := range likely[n*k:][:k] {
			if err := checkID(n, id, all); err != nil {
				return err
			}
			outcome[id], logq = i, append(logq, scaled[id]-norm)
		}
		var others []float64
		for j, i := range outcome {
			if i == k {
				others = append(others, scaled[j])
			}
		}
		if len(others) > 0 {
			logq = append(logq, logSumExp(others)-norm)
		}
		logP := row(logp, n, k+1)[:len(logq)]
		divergence := 0.0
		for i := range logq {
			p = append(p, math.Exp(logP[i]))
			if q := math.Exp(logq[i]); a.Reverse && q > 0 {
				divergence += q * (logq[i] - logP[i])
			} else if !a.Reverse && p[i] > 0 {
				divergence += p[i] * (logP[i] - logq[i])
			}
		}
		stats[0] += lse - logits[target]
		stats[1] += divergence
		stats[2]++
		if !a.Grad.Valid() {
			continue
		}
		grad := rowOf(a.Grad, n)
		for j, v := range logits {
			i := outcome[j]
			share := math.Exp(scaled[j] - norm - logq[i]) // of the id in its outcome
			slope := math.Exp(logq[i]) - p[i]
			if a.Reverse {
				slope = math.Exp(logq[i]) * (logq[i] - logP[i] - divergence)
			}
			grad[j] = a.Scale * ((1-a.Weight)*math.Exp(v-lse) + a.Weight*a.Temperature*share*slope)
		}
		grad[target] -= a.Scale * (1 - a.Weight)
	}
	return nil
}
