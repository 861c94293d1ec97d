package main

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// attend is x + attention·Oᵀ. The queries come from norm(x). The keys and values come from the
// second input [B, S, width] or, without one, also from norm(x).
type attend struct {
	width, heads int
	// keys is the field of ids from which keys and values are computed; queries ignore padding
	// among them. "": there is no padding, and each position ignores later positions.
	keys string
}

const (
	attendQ = iota + 2 // after the parameters of the norm
	attendKV
	attendOut
)

func (l *attend) Fields() []string {
	if l.keys == "" {
		return nil
	}
	return []string{l.keys}
}

func (l *attend) Params() []stages.LayerParam {
	return append(norms(l.width),
		stages.LayerParam{Name: "q.weight", Shape: []int{l.width, l.width}, Init: draw},
		stages.LayerParam{Name: "kv.weight", Shape: []int{2 * l.width, l.width}, Init: draw},
		stages.LayerParam{Name: "out.weight", Shape: []int{l.width, l.width}, Init: draw})
}

// The slots that attend saves.
const (
	attendedNorm = iota
	attendedStats
	attendedQ
	attendedKV
	attendedShares // weight of each key in each query
	attended
	attendedNormGrad
	attendedQGrad
	attendedKVGrad
)

func (l *attend) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	x := in[0]
	memory := in[len(in)-1]
	if x.Rank() != 3 || memory.Rank() != 3 || x.Dim(2) != l.width || memory.Dim(2) != l.width || memory.Dim(0) != x.Dim(0) {
		p.Fail(fmt.Errorf("%w: it takes [B, T, %d], but got %v", stages.ErrInput, l.width, in))
		return nil
	}
	h, stats := p.AllocLike(x), p.Alloc(tensorops.Float32, x.Rows(), 2)
	p.LayerNorm(h, x, p.Weight(0), p.Weight(1), stats, normEps)
	p.Save(attendedNorm, h)
	memory = l.memory(p, in)
	q, kv := p.AllocLike(x), p.Alloc(tensorops.Float32, memory.Dim(0), memory.Dim(1), 2*l.width)
	shares, a, y := p.Alloc(tensorops.Float32, x.Dim(0), l.heads, x.Dim(1), memory.Dim(1)), p.AllocLike(x), p.AllocLike(x)
	product := tensorops.MatMulOpts{TransB: true, BF16: p.BF16()}
	p.MatMul(q, h, p.Weight(attendQ), product)
	p.MatMul(kv, memory, p.Weight(attendKV), product)
	reads := []tensorops.Tensor{q, kv}
	if l.keys != "" {
		reads = append(reads, p.Field(l.keys))
	}
	p.Call("attention", reads, []tensorops.Tensor{a, shares}, l.attention)
	p.MatMul(y, a, p.Weight(attendOut), product)
	p.Add(y, y, x)
	p.Save(attendedStats, stats)
	p.Save(attendedQ, q)
	p.Save(attendedKV, kv)
	p.Save(attendedShares, shares)
	p.Save(attended, a)
	return []tensorops.Tensor{y}
}

// memory returns the tensor from which keys and values are computed.
func (l *attend) memory(p *stages.Pass, in []tensorops.Tensor) tensorops.Tensor {
	if len(in) > 1 {
		return in[1]
	}
	return p.Saved(attendedNorm)
}

func (l *attend) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dy, q, kv := dout[0], p.Saved(attendedQ), p.Saved(attendedKV)
	da, dq, dkv, dh, dx := p.AllocLike(dy), p.AllocLike(q), p.AllocLike(kv), p.AllocLike(dy), p.AllocLike(dy)
	p.MatMul(da, dy, p.Weight(attendOut), tensorops.MatMulOpts{BF16: p.BF16()})
	p.Call("attention gradient", []tensorops.Tensor{da, q, kv, p.Saved(attendedShares)}, []tensorops.Tensor{dq, dkv}, l.attentionGrad)
	p.Free(da)
	p.MatMul(dh, dq, p.Weight(attendQ), tensorops.MatMulOpts{BF16: p.BF16()})
	din := []tensorops.Tensor{dx}
	if len(in) > 1 {
		din = append(din, p.AllocLike(in[1]))
		p.MatMul(din[1], dkv, p.Weight(attendKV), tensorops.MatMulOpts{BF16: p.BF16()})
	} else {
		p.MatMul(dh, dkv, p.Weight(attendKV), tensorops.MatMulOpts{Accumulate: true, BF16: p.BF16()})
	}
	p.LayerNormGrad(dx, dh, in[0], p.Weight(0), p.Saved(attendedStats), dy)
	p.Save(attendedNormGrad, dh)
	p.Save(attendedQGrad, dq)
	p.Save(attendedKVGrad, dkv)
	return din
}

func (l *attend) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	add := tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: p.BF16()}
	p.LayerNormWeightGrad(p.Grad(0), p.Grad(1), p.Saved(attendedNormGrad), in[0], p.Saved(attendedStats))
	p.MatMul(p.Grad(attendQ), p.Saved(attendedQGrad), p.Saved(attendedNorm), add)
	p.MatMul(p.Grad(attendKV), p.Saved(attendedKVGrad), l.memory(p, in), add)
	p.MatMul(p.Grad(attendOut), dout[0], p.Saved(attended), add)
}

// attention computes the weighted sums of values, and the weights: softmax(q·kᵀ/√D).
func (l *attend) attention(reads, writes []tensorops.Array) error {
	q, kv, a, shares := reads[0], reads[1], writes[0], writes[1]
	clear(a.Float)
	clear(shares.Float)
	l.each(q, kv, func(at place) {
		share := shares.Float[at.shares:][:at.keys]
		largest, sum := math.Inf(-1), 0.0
		for k := range share {
			if l.hidden(reads, at, k) {
				continue
			}
			share[k] = float32(at.scale) * dot(q.Float[at.q:][:at.width], kv.Float[at.key(k):])
			largest = max(largest, float64(share[k]))
		}
		for k, v := range share {
			if l.hidden(reads, at, k) {
				continue
			}
			e := math.Exp(float64(v) - largest)
			sum, share[k] = sum+e, float32(e)
		}
		for k := range share {
			share[k] /= float32(max(sum, 1)) // exp of the largest is 1
			addTo(a.Float[at.q:][:at.width], share[k], kv.Float[at.value(k):])
		}
	})
	return nil
}

// hidden reports whether a query must ignore key k.
func (l *attend) hidden(reads []tensorops.Array, at place, k int) bool {
	if l.keys == "" {
		return k > at.query
	}
	return reads[2].Int[at.sample*at.keys+k] == padding
}

func (l *attend) attentionGrad(reads, writes []tensorops.Array) error {
	da, q, kv, shares, dq, dkv := reads[0], reads[1], reads[2], reads[3], writes[0], writes[1]
	clear(dq.Float)
	clear(dkv.Float)
	l.each(q, kv, func(at place) {
		share, dout := shares.Float[at.shares:][:at.keys], da.Float[at.q:][:at.width]
		var mean float32 // mean of the gradients of the shares
		for k, s := range share {
			addTo(dkv.Float[at.value(k):][:at.width], s, dout)
			mean += s * dot(dout, kv.Float[at.value(k):])
		}
		for k, s := range share {
			d := float32(at.scale) * s * (dot(dout, kv.Float[at.value(k):]) - mean)
			addTo(dq.Float[at.q:][:at.width], d, kv.Float[at.key(k):])
			addTo(dkv.Float[at.key(k):][:at.width], d, q.Float[at.q:])
		}
	})
	return nil
}

// place is the place of a query in the arrays of an attention.
type place struct {
	sample, query, keys, width int // width of a head
	q, kv, shares, row         int // row: numbers from a key to the next
	scale                      float64
}

func (a place) key(k int) int   { return a.kv + k*a.row }
func (a place) value(k int) int { return a.kv + k*a.row + a.row/2 }

// each calls f for each query of each head.
func (l *attend) each(q, kv tensorops.Array, f func(at place)) {
	width := l.width / l.heads
	queries, keys := q.Shape[1], kv.Shape[1]
	for sample := range q.Shape[0] {
		for head := range l.heads {
			for query := range queries {
				f(place{sample: sample, query: query, keys: keys, width: width, row: 2 * l.width, scale: 1 / math.Sqrt(float64(width)),
					q: (sample*queries+query)*l.width + head*width, kv: sample*keys*2*l.width + head*width,
					shares: ((sample*l.heads+head)*queries + query) * keys})
			}
		}
	}
}

// dot returns Σ a·b over a's length.
func dot(a, b []float32) (sum float32) {
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// addTo adds s·b to to, over the length of to.
func addTo(to []float32, s float32, b []float32) {
	for i := range to {
		to[i] += s * b[i]
	}
}
