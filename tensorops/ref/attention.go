package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// rope turns the pairs (i, i + D/2) of each head by position·theta^(−2i/D).
func rope(op *tensorops.Op) {
	x, heads, period, first, theta := matrixOf(op.T[0]), op.I[0], op.I[1], op.I[2], op.F[0]
	d := x.cols / heads
	for n := range x.rows {
		position := float64(first + n%period)
		for h := range heads {
			for i := range d / 2 {
				angle := position * math.Pow(theta, -2*float64(i)/float64(d))
				if op.Has(tensorops.FlagInverse) {
					angle = -angle
				}
				sin, cos := math.Sincos(angle)
				a, b := x.at(n, h*d+i), x.at(n, h*d+i+d/2)
				*a, *b = *a*cos-*b*sin, *b*cos+*a*sin
			}
		}
	}
}

// sizes says where things are in one attention operation.
type sizes struct {
	batch, tq, tk, heads, kvHeads, d int
	mask                             mask
}

func sizesOf(op *tensorops.Op, q tensorops.Tensor) sizes {
	return sizes{op.I[0], op.I[1], op.I[2], op.I[3], op.I[4], q.Cols() / op.I[3], maskOf(op)}
}

// place is one query: position i of head h in sequence b.
type place struct{ b, h, i int }

// each visits every query.
func (s sizes) each(visit func(at place)) {
	for b := range s.batch {
		for h := range s.heads {
			for i := range s.tq {
				visit(place{b, h, i})
			}
		}
	}
}

// seen is the number of keys that a query sees: 0..i+Tk−Tq.
func (s sizes) seen(at place) int { return at.i + s.tk - s.tq + 1 }

// query is where channel c of a query is in q, o and their gradients, key where
// channel c of key j is in k, v and theirs.
func (s sizes) query(m matrix, at place, c int) *float64 {
	return m.at(at.b*s.tq+at.i, at.h*s.d+c)
}

func (s sizes) key(m matrix, at place, j, c int) *float64 {
	return m.at(at.b*s.tk+j, at.h/(s.heads/s.kvHeads)*s.d+c)
}

// index is the place of a query among all: in lse, and times Tk in the mask.
func (s sizes) index(at place) int { return (at.b*s.heads+at.h)*s.tq + at.i }

// dropped is what dropout multiplies the probability of key j by.
func (s sizes) dropped(at place, j int) float64 { return s.mask.factor(s.index(at)*s.tk + j) }

// scores are q·k/√D for the keys that a query sees.
func (s sizes) scores(q, k matrix, at place) []float64 {
	scores := make([]float64, s.seen(at))
	for j := range scores {
		for c := range s.d {
			scores[j] += *s.query(q, at, c) * *s.key(k, at, j, c) / math.Sqrt(float64(s.d))
		}
	}
	return scores
}

// attention: o = dropout(softmax(scores))·v, lse = the softmax's log-sum.
func attention(op *tensorops.Op) {
	o, q, k, v, lse := matrixOf(op.T[0]), matrixOf(op.T[1]), matrixOf(op.T[2]), matrixOf(op.T[3]), Values(op.T[4])
	s := sizesOf(op, op.T[1])
	s.each(func(at place) {
		scores := s.scores(q, k, at)
		total := logSumExp(scores)
		lse[s.index(at)] = total
		for c := range s.d {
			*s.query(o, at, c) = 0
		}
		for j, score := range scores {
			p := math.Exp(score-total) * s.dropped(at, j)
			for c := range s.d {
				*s.query(o, at, c) += p * *s.key(v, at, j, c)
			}
		}
	})
}

// attentionGrad, with p = exp(score − lse) and m its dropout factor:
// dv[j] += p·m·do; dp = m·(do·v[j]); ds = p·(dp − Σ p·dp); dq += ds·k[j]/√D;
// dk[j] += ds·q/√D.
func attentionGrad(op *tensorops.Op) {
	dq, dk, dv, do := matrixOf(op.T[0]), matrixOf(op.T[1]), matrixOf(op.T[2]), matrixOf(op.T[3])
	q, k, v, lse := matrixOf(op.T[4]), matrixOf(op.T[5]), matrixOf(op.T[6]), Values(op.T[8])
	for _, m := range []matrix{dq, dk, dv} {
		for i := range m.rows {
			for j := range m.cols {
				*m.at(i, j) = 0
			}
		}
	}
	s := sizesOf(op, op.T[4])
	s.each(func(at place) {
		scores := s.scores(q, k, at)
		p, dp := make([]float64, len(scores)), make([]float64, len(scores))
		var mean float64 // Σ p·dp
		for j, score := range scores {
			p[j] = math.Exp(score - lse[s.index(at)])
			m := s.dropped(at, j)
			for c := range s.d {
				*s.key(dv, at, j, c) += p[j] * m * *s.query(do, at, c)
				dp[j] += m * *s.query(do, at, c) * *s.key(v, at, j, c)
			}
			mean += p[j] * dp[j]
		}
		for j := range scores {
			ds := p[j] * (dp[j] - mean) / math.Sqrt(float64(s.d))
			for c := range s.d {
				*s.query(dq, at, c) += ds * *s.key(k, at, j, c)
				*s.key(dk, at, j, c) += ds * *s.query(q, at, c)
			}
		}
	})
}
