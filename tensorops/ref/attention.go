package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// rope turns the pairs (i, i + n), or (2i, 2i + 1), of each head by position·frequency(i); the channels behind these 2n stay.
func rope(op *tensorops.Op) {
	a := op.RoPE()
	x, pairs := matrixOf(a.X), a.Rotation.Pairs()
	d := x.cols / a.Heads
	for n := range x.rows {
		position := float64(a.First + n%a.Period - startAt(a.Starts, n))
		for h := range a.Heads {
			for i := range pairs {
				angle := position * a.Rotation.Frequency(i)
				if a.Inverse {
					angle = -angle
				}
				sin, cos := math.Sincos(angle)
				left, right := x.at(n, h*d+i), x.at(n, h*d+i+pairs)
				if a.Interleaved {
					left, right = x.at(n, h*d+2*i), x.at(n, h*d+2*i+1)
				}
				*left, *right = a.Rotation.Scale()*(*left*cos-*right*sin), a.Rotation.Scale()*(*right*cos+*left*sin)
			}
		}
	}
}

// sizes says where things are in one attention operation.
type sizes struct {
	tensorops.AttentionSizes
	mask   mask
	starts tensorops.Tensor
}

// place is one query: position i of head h in sequence b.
type place struct{ b, h, i int }

// each visits every query.
func (s sizes) each(visit func(at place)) {
	for b := range s.Batch {
		for h := range s.Heads {
			for i := range s.Queries {
				visit(place{b, h, i})
			}
		}
	}
}

// query are the channels of a query in q, o or their gradients, key those of key j in k, v or theirs.
func (s sizes) query(m matrix, at place) []float64 {
	first := (at.b*s.Queries+at.i)*m.rowStep + at.h*s.Width
	return m.elements[first : first+s.Width]
}

func (s sizes) key(m matrix, at place, j int) []float64 {
	first := (at.b*s.Keys+j)*m.rowStep + at.h/s.Group()*s.Width
	return m.elements[first : first+s.Width]
}

// index is the place of a query among all: in lse.
func (s sizes) index(at place) int { return (at.b*s.Heads+at.h)*s.Queries + at.i }

// dropped is what dropout multiplies the probability of key j by.
func (s sizes) dropped(at place, j int) float64 {
	return s.mask.factor(int(s.MaskIndex(at.b*s.Heads+at.h, at.i, j)))
}

// scores are q·k times their factor for the keys that a query sees, bounded if they have a cap, and the
// first of these keys.
func (s sizes) scores(q, k matrix, at place) (scores []float64, first int) {
	first, end := s.Seen(at.i)
	first = min(max(first, startAt(s.starts, at.b*s.Queries+at.i)), end)
	scores = make([]float64, end-first)
	query := s.query(q, at)
	for j := range scores {
		scores[j] = s.capped(dot(query, s.key(k, at, first+j)) * s.Factor())
	}
	return scores, first
}

// capped is a scaled score under the soft cap, if there is one.
func (s sizes) capped(score float64) float64 {
	if s.SoftCap == 0 {
		return score
	}
	return s.SoftCap * math.Tanh(score/s.SoftCap)
}

// slope is the derivative of capped by q·k, given what capped returned.
func (s sizes) slope(score float64) float64 {
	if s.SoftCap == 0 {
		return s.Factor()
	}
	return s.Factor() * (1 - score/s.SoftCap*score/s.SoftCap)
}

// attention: o = dropout(softmax(scores))·v, lse = the softmax's log-sum. Where it goes on from
// other keys, what o has is kept by the share of the sum that these had.
func attention(op *tensorops.Op) {
	a := op.Attention()
	o, q, k, v, lse := matrixOf(a.O), matrixOf(a.Q), matrixOf(a.K), matrixOf(a.V), Values(a.LSE)
	s := sizes{a.AttentionSizes, mask(a.Mask), a.Starts}
	s.each(func(at place) {
		scores, first := s.scores(q, k, at)
		total, kept := logSumExp(scores), 0.0
		if a.Onto {
			before := lse[s.index(at)]
			if len(scores) == 0 {
				return
			}
			total = logSumExp([]float64{before, total})
			kept = math.Exp(before - total)
		}
		lse[s.index(at)] = total
		out := s.query(o, at)
		for c := range out {
			if a.Onto {
				out[c] *= kept
			} else {
				out[c] = 0 // whatever was there, not a number perhaps
			}
		}
		for j, score := range scores {
			addScaled(out, math.Exp(score-total)*s.dropped(at, first+j), s.key(v, at, first+j))
		}
	})
}

// dot is Σ x·y.
func dot(x, y []float64) (sum float64) {
	for c, v := range y {
		sum += x[c] * v
	}
	return sum
}

// addScaled: x += factor·y.
func addScaled(x []float64, factor float64, y []float64) {
	for c, v := range y {
		x[c] += factor * v
	}
}

// attentionGrad, with p = exp(score − lse), m its dropout factor and slope that of the score by q·k:
// dv[j] += p·m·do; dp = m·(do·v[j]); ds = p·(dp − o·do), as o·do is Σ p·dp; dq += ds·k[j]·slope;
// dk[j] += ds·q·slope.
func attentionGrad(op *tensorops.Op) {
	a := op.AttentionGrad()
	dq, dk, dv, do := matrixOf(a.DQ), matrixOf(a.DK), matrixOf(a.DV), matrixOf(a.DO)
	q, k, v, o, lse := matrixOf(a.Q), matrixOf(a.K), matrixOf(a.V), matrixOf(a.O), Values(a.LSE)
	for _, m := range []matrix{dq, dk, dv} {
		for i := range m.rows {
			for j := range m.cols {
				*m.at(i, j) = 0
			}
		}
	}
	s := sizes{a.AttentionSizes, mask(a.Mask), a.Starts}
	s.each(func(at place) {
		scores, first := s.scores(q, k, at)
		p, dp := make([]float64, len(scores)), make([]float64, len(scores))
		grad := s.query(do, at)
		mean := dot(s.query(o, at), grad) // Σ p·dp over all keys, of which these may be some
		for j, score := range scores {
			p[j] = math.Exp(score - lse[s.index(at)])
			m := s.dropped(at, first+j)
			addScaled(s.key(dv, at, first+j), p[j]*m, grad)
			dp[j] = m * dot(grad, s.key(v, at, first+j))
		}
		for j, score := range scores {
			ds := p[j] * (dp[j] - mean) * s.slope(score)
			addScaled(s.query(dq, at), ds, s.key(k, at, first+j))
			addScaled(s.key(dk, at, first+j), ds, s.query(q, at))
		}
	})
}
