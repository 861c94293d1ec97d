package optest

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

func attentionCases() []Case {
	cases := []Case{
		{"rope/shapes", tensorops.KindRoPE, func(b *builder) {
			for _, s := range ropes {
				for _, inverse := range []bool{false, true} {
					x := b.normal(s.rows, s.heads*s.d)
					b.RoPE(x, tensorops.RoPEOpts{Heads: s.heads, Period: s.period, First: s.first, Rotation: s.rotation(), Inverse: inverse,
						Starts: s.docs.starts(b, s.rows/s.period, s.period, s.period, s.first)})
					b.check(x, "x of %+v, inverse %v", s, inverse)
				}
			}
		}},
		{"rope/far", tensorops.KindRoPE, func(b *builder) {
			for _, first := range []int{0, 1_000_000, 1 << 24, 1 << 30, farthest} {
				for _, inverse := range []bool{false, true} {
					x := b.normal(10, 3*8)
					b.RoPE(x, tensorops.RoPEOpts{Heads: 3, Period: 5, First: first, Rotation: rotation(1, 4), Inverse: inverse})
					b.check(x, "x of positions from %d on, inverse %v", first, inverse)
				}
			}
		}},
		{"rope/columns", tensorops.KindRoPE, func(b *builder) {
			whole, x := b.framed(34, 3*20)
			b.RoPE(x, tensorops.RoPEOpts{Heads: 3, Period: 17, Rotation: rotation(10000, 10)})
			b.check(whole, "x with the columns around it")
			whole, x = b.framed(34, 3*20)
			b.RoPE(x, tensorops.RoPEOpts{Heads: 3, Period: 17, Rotation: rotation(10000, 7)})
			b.check(whole, "x of which a part of each head rotates, with the columns around it")
		}},
		{"rope/interleaved", tensorops.KindRoPE, func(b *builder) {
			for _, inverse := range []bool{false, true} {
				whole, x := b.framed(34, 3*20)
				b.RoPE(x, tensorops.RoPEOpts{Heads: 3, Period: 17, First: 2, Rotation: rotation(10000, 7), Inverse: inverse,
					Interleaved: true})
				b.check(whole, "x with the columns around it, inverse %v", inverse)
			}
		}},
		// More pairs than a device may take at a time.
		{"rope/wide", tensorops.KindRoPE, func(b *builder) {
			for _, pairs := range []int{256, 300, 513} {
				x := b.normal(3, 2*1030)
				b.RoPE(x, tensorops.RoPEOpts{Heads: 2, Period: 3, First: 2, Rotation: rotation(10000, pairs)})
				b.check(x, "x with %d pairs", pairs)
			}
		}},
	}
	cases = eitherType(cases)
	for _, a := range attentions {
		both := []Case{
			{"attention/" + a.String(), tensorops.KindAttention, func(b *builder) { a.record(b).checkForward(b) }},
			{"attention_grad/" + a.String(), tensorops.KindAttentionGrad, func(b *builder) { a.record(b).checkGrad(b) }},
		}
		if a.bf16 {
			both = eitherType(both)
		}
		cases = append(cases, both...)
	}
	return cases
}

// ropes end at positions where an angle that was computed in float32 is wrong.
var ropes = []rope{
	{rows: 0, heads: 2, d: 4, period: 3, theta: 10000},
	{rows: 1, heads: 1, d: 2, period: 1, theta: 10000},
	{rows: 1, heads: 1, d: 2, period: 1, first: 5, theta: 10000},
	{rows: 15, heads: 2, d: 6, period: 5, first: 3, theta: 10000},
	{rows: 260, heads: 5, d: 64, period: 65, theta: 10000},
	{rows: 64, heads: 2, d: 64, period: 32, first: 4000, theta: 10000},
	{rows: 33, heads: 3, d: 30, period: 33, first: 100, theta: 500000},
	{rows: 4, heads: 2, d: 64, period: 2, first: 300000, theta: 10000}, // beyond what the CPU keeps
	{rows: 15, heads: 2, d: 6, period: 5, first: 3, theta: 10000, slower: 4},
	{rows: 64, heads: 2, d: 64, period: 32, first: 4000, theta: 10000, slower: 2.5},
	{rows: 40, heads: 2, d: 48, period: 20, theta: 10000, scale: 1.3465},
	{rows: 15, heads: 3, d: 7, period: 5, first: 3, theta: 10000, still: 1},
	{rows: 34, heads: 2, d: 40, period: 17, first: 9, theta: 500000, still: 14},
	{rows: 34, heads: 2, d: 40, period: 17, first: 9, theta: 500000, zeros: 7, scale: 0.75},
	{rows: 15, heads: 2, d: 6, period: 5, theta: 10000, docs: oneDoc},
	{rows: 260, heads: 5, d: 64, period: 65, theta: 10000, docs: shortDocs},
	{rows: 33, heads: 3, d: 30, period: 33, first: 100, theta: 500000, docs: anyStarts},
	{rows: 4, heads: 2, d: 64, period: 2, first: 300000, theta: 10000, docs: anyStarts},
	{rows: 34, heads: 2, d: 40, period: 17, theta: 500000, still: 14, docs: tokenDocs},
}

// rope is one operation. The still channels at the end of each head don't rotate, nor do the last pairs, which have a
// frequency of zero.
type rope struct {
	rows, heads, d, period, first int

	theta, slower, scale float64
	still, zeros         int
	docs                 docs
}

func (s rope) rotation() *tensorops.Rotation {
	pairs := (s.d - s.still) / 2
	turns := frequencies(s.theta, pairs)
	for i := range turns {
		if s.slower > 0 {
			turns[i] /= s.slower
		}
		if i >= pairs-s.zeros {
			turns[i] = 0
		}
	}
	scale := s.scale
	if scale == 0 {
		scale = 1
	}
	return tensorops.NewRotation(turns, scale)
}

// rotation is the usual one of a base.
func rotation(theta float64, pairs int) *tensorops.Rotation {
	return tensorops.NewRotation(frequencies(theta, pairs), 1)
}

func frequencies(theta float64, pairs int) []float64 {
	f := make([]float64, pairs)
	for i := range f {
		f[i] = math.Pow(theta, -float64(i)/float64(pairs))
	}
	return f
}

// farthest is the last first position of which a device, with 5 positions, keeps the number in 32 bits. The operation has no
// limit of its own. Base 1 turns every pair by one radian from a position to the next: so an angle is exact
// in float64, and what a device gets wrong is its sine.
const farthest = 1<<31 - 5

// attention is one operation with its gradient.
type attention struct {
	batch, tq, tk, heads, kvHeads, d int

	window int
	whole  bool
	before int // positions before the queries, if whole
	onto   int // keys that the queries have been over before
	docs   docs
	of     int // positions of the sequences
	p      float64
	first  uint64
	scale  float64 // of the queries; 0: 1
	factor float64 // of the scores; 0: 1/√D
	cap    float64 // of the scores
	views  bool    // q, k and v are columns of one matrix, their gradients of another
	bf16   bool
}

func (a attention) String() string {
	s := fmt.Sprintf("B=%d Tq=%d Tk=%d H=%d KV=%d D=%d", a.batch, a.tq, a.tk, a.heads, a.kvHeads, a.d)
	if a.window > 0 {
		s += fmt.Sprintf(" window=%d", a.window)
	}
	if a.whole {
		s += " whole"
	}
	if a.before > 0 {
		s += fmt.Sprintf(" before=%d", a.before)
	}
	if a.onto > 0 {
		s += fmt.Sprintf(" onto=%d", a.onto)
	}
	if a.docs != noDocs {
		s += fmt.Sprintf(" docs=%s", a.docs)
	}
	if a.of > 0 {
		s += fmt.Sprintf(" of=%d", a.of)
	}
	if a.p > 0 {
		s += fmt.Sprintf(" P=%g first=%d", a.p, a.first)
	}
	if a.scale > 0 {
		s += fmt.Sprintf(" scale=%g", a.scale)
	}
	if a.factor > 0 {
		s += fmt.Sprintf(" factor=%g", a.factor)
	}
	if a.cap > 0 {
		s += fmt.Sprintf(" cap=%g", a.cap)
	}
	if a.views {
		s += " views"
	}
	if a.bf16 {
		s += " bf16"
	}
	return s
}

var attentions = []attention{
	{batch: 1, heads: 1, kvHeads: 1, d: 4},
	{batch: 1, tq: 1, tk: 1, heads: 1, kvHeads: 1, d: 1},
	{batch: 2, tq: 5, tk: 5, heads: 2, kvHeads: 2, d: 3},
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5},
	{batch: 3, tq: 1, tk: 33, heads: 4, kvHeads: 1, d: 16},
	{batch: 2, tq: 31, tk: 65, heads: 6, kvHeads: 3, d: 7},
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, views: true},
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, p: 0.3},
	{batch: 2, tq: 33, tk: 33, heads: 4, kvHeads: 2, d: 16, p: 0.3, first: 1_000_003},
	{batch: 2, tq: 7, tk: 19, heads: 2, kvHeads: 1, d: 8, p: 0.3, first: 1<<32 - 3, views: true},
	{batch: 2, tq: 40, tk: 40, heads: 2, kvHeads: 2, d: 16, scale: 20},
	{batch: 1, tq: 64, tk: 64, heads: 2, kvHeads: 2, d: 64},
	{batch: 2, tq: 97, tk: 97, heads: 3, kvHeads: 1, d: 33},
	{batch: 1, tq: 130, tk: 300, heads: 1, kvHeads: 1, d: 24},
	{batch: 1, tq: 65, tk: 65, heads: 4, kvHeads: 4, d: 16, views: true},
	{batch: 1, tq: 35, tk: 70, heads: 2, kvHeads: 1, d: 128},
	{batch: 2, tq: 33, tk: 41, heads: 2, kvHeads: 1, d: 100, p: 0.2, first: 77},

	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, window: 1},
	{batch: 2, tq: 33, tk: 33, heads: 4, kvHeads: 2, d: 16, window: 7, p: 0.3, first: 1_000_003},
	{batch: 1, tq: 65, tk: 65, heads: 4, kvHeads: 4, d: 16, window: 32, views: true},
	{batch: 1, tq: 130, tk: 300, heads: 2, kvHeads: 1, d: 24, window: 100},
	{batch: 1, tq: 330, tk: 330, heads: 1, kvHeads: 1, d: 8, window: 20},
	{batch: 1, tq: 70, tk: 70, heads: 2, kvHeads: 1, d: 72, window: 65},
	{batch: 3, tq: 1, tk: 333, heads: 4, kvHeads: 1, d: 16, window: 5},
	{batch: 1, tq: 40, tk: 40, heads: 2, kvHeads: 2, d: 16, window: 40},

	{batch: 1, tq: 1, tk: 1, heads: 1, kvHeads: 1, d: 1, whole: true},
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, whole: true},
	{batch: 2, tq: 33, tk: 7, heads: 4, kvHeads: 2, d: 16, whole: true, p: 0.3, first: 1_000_003},
	{batch: 1, tq: 65, tk: 65, heads: 4, kvHeads: 4, d: 16, whole: true, views: true},
	{batch: 1, tq: 300, tk: 330, heads: 2, kvHeads: 1, d: 24, whole: true},
	{batch: 2, tq: 33, tk: 7, heads: 4, kvHeads: 2, d: 16, whole: true, of: 50, p: 0.3, first: 1_000_003},
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, of: 40, p: 0.3, first: 77, onto: 9},
	{batch: 3, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, of: 40, p: 0.3, first: 77},
	{batch: 2, tq: 70, tk: 70, heads: 2, kvHeads: 1, d: 64, window: 33, of: 101, p: 0.2, first: 3, views: true},
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, onto: 17},
	{batch: 1, tq: 97, tk: 97, heads: 2, kvHeads: 1, d: 33, onto: 300},
	{batch: 1, tq: 40, tk: 40, heads: 2, kvHeads: 2, d: 16, scale: 20, onto: 9},
	{batch: 1, tq: 300, tk: 330, heads: 2, kvHeads: 1, d: 24, whole: true, onto: 40},

	// Blocks of a sequence under a window: all queries see some of the keys, or the later ones none.
	{batch: 2, tq: 33, tk: 40, heads: 4, kvHeads: 2, d: 5, whole: true, before: 40, window: 35, of: 80, p: 0.3, first: 1_000_003},
	{batch: 2, tq: 33, tk: 20, heads: 4, kvHeads: 2, d: 16, whole: true, before: 25, window: 10},
	{batch: 1, tq: 300, tk: 330, heads: 2, kvHeads: 1, d: 24, whole: true, before: 340, window: 100, views: true},
	{batch: 1, tq: 40, tk: 288, heads: 1, kvHeads: 1, d: 8, whole: true, before: 300, window: 13},
	{batch: 1, tq: 9, tk: 7, heads: 2, kvHeads: 2, d: 3, whole: true, before: 7, window: 100},
	{batch: 1, tq: 97, tk: 97, heads: 2, kvHeads: 1, d: 33, window: 50, onto: 40},
	{batch: 1, tq: 97, tk: 97, heads: 2, kvHeads: 1, d: 16, window: 20, onto: 330},

	// The factor and the soft cap of the scores.
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, factor: 0.3},
	{batch: 2, tq: 33, tk: 33, heads: 4, kvHeads: 2, d: 16, factor: 0.5, cap: 2, p: 0.3, first: 1_000_003},
	{batch: 2, tq: 31, tk: 65, heads: 6, kvHeads: 3, d: 7, cap: 50, views: true},
	{batch: 1, tq: 97, tk: 97, heads: 3, kvHeads: 1, d: 33, scale: 20, cap: 5, window: 20},
	{batch: 1, tq: 330, tk: 330, heads: 1, kvHeads: 1, d: 8, cap: 0.1, window: 20},
	{batch: 3, tq: 1, tk: 333, heads: 4, kvHeads: 1, d: 16, factor: 0.07, cap: 1},
	{batch: 1, tq: 40, tk: 40, heads: 2, kvHeads: 2, d: 16, cap: 3, onto: 9},

	// Heads as wide as Gemma's.
	{batch: 1, tq: 35, tk: 70, heads: 2, kvHeads: 1, d: 256, factor: 0.0625, cap: 50, window: 30},
	{batch: 1, tq: 20, tk: 33, heads: 2, kvHeads: 1, d: 512, factor: 1.0 / 16},

	{batch: 1, heads: 1, kvHeads: 1, d: 4, bf16: true},
	{batch: 1, tq: 1, tk: 1, heads: 1, kvHeads: 1, d: 1, bf16: true},
	{batch: 2, tq: 5, tk: 5, heads: 2, kvHeads: 2, d: 3, bf16: true},
	{batch: 2, tq: 31, tk: 65, heads: 6, kvHeads: 3, d: 7, bf16: true},
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, p: 0.3, views: true, bf16: true},
	{batch: 1, tq: 130, tk: 130, heads: 2, kvHeads: 2, d: 64, bf16: true},
	{batch: 1, tq: 64, tk: 64, heads: 4, kvHeads: 2, d: 64, p: 0.3, first: 1_000_003, views: true, bf16: true},
	{batch: 2, tq: 70, tk: 70, heads: 4, kvHeads: 2, d: 64, of: 101, p: 0.3, first: 1_000_003, bf16: true},
	{batch: 1, tq: 150, tk: 150, heads: 2, kvHeads: 1, d: 128, of: 160, p: 0.2, bf16: true},
	{batch: 1, tq: 130, tk: 300, heads: 1, kvHeads: 1, d: 24, bf16: true},
	{batch: 1, tq: 40, tk: 40, heads: 2, kvHeads: 2, d: 16, scale: 8, bf16: true},
	{batch: 2, tq: 35, tk: 70, heads: 2, kvHeads: 1, d: 128, bf16: true},
	{batch: 1, tq: 161, tk: 161, heads: 3, kvHeads: 1, d: 33, bf16: true},
	{batch: 2, tq: 33, tk: 41, heads: 2, kvHeads: 1, d: 100, p: 0.2, first: 1<<32 - 3, bf16: true},
	{batch: 1, tq: 20, tk: 20, heads: 1, kvHeads: 1, d: 132, bf16: true},
	{batch: 2, tq: 31, tk: 65, heads: 6, kvHeads: 3, d: 7, window: 9, bf16: true},
	{batch: 1, tq: 130, tk: 130, heads: 2, kvHeads: 2, d: 64, window: 33, bf16: true},
	{batch: 1, tq: 64, tk: 64, heads: 4, kvHeads: 2, d: 64, window: 16, p: 0.3, first: 1_000_003, views: true, bf16: true},
	{batch: 1, tq: 161, tk: 300, heads: 3, kvHeads: 1, d: 33, window: 1, bf16: true},
	{batch: 1, tq: 330, tk: 330, heads: 2, kvHeads: 1, d: 72, window: 50, bf16: true},
	{batch: 1, tq: 300, tk: 300, heads: 2, kvHeads: 1, d: 64, views: true, bf16: true},
	{batch: 1, tq: 260, tk: 280, heads: 2, kvHeads: 1, d: 48, p: 0.1, first: 6, bf16: true},
	{batch: 1, tq: 200, tk: 200, heads: 2, kvHeads: 2, d: 96, views: true, bf16: true},
	{batch: 1, tq: 150, tk: 150, heads: 2, kvHeads: 1, d: 128, p: 0.2, window: 70, bf16: true},
	{batch: 2, tq: 31, tk: 65, heads: 6, kvHeads: 3, d: 7, factor: 0.3, bf16: true},
	{batch: 1, tq: 130, tk: 130, heads: 2, kvHeads: 2, d: 64, factor: 0.25, cap: 4, bf16: true},
	{batch: 1, tq: 97, tk: 130, heads: 2, kvHeads: 1, d: 128, cap: 2, window: 50, views: true, bf16: true},
	{batch: 2, tq: 33, tk: 33, heads: 2, kvHeads: 1, d: 40, cap: 3, p: 0.3, first: 5, bf16: true},
	{batch: 1, tq: 70, tk: 70, heads: 2, kvHeads: 1, d: 96, cap: 3, p: 0.2, window: 33, bf16: true},
	{batch: 1, tq: 35, tk: 70, heads: 2, kvHeads: 1, d: 256, factor: 0.0625, cap: 50, window: 30, bf16: true},
	{batch: 1, tq: 20, tk: 33, heads: 2, kvHeads: 1, d: 512, factor: 1.0 / 16, bf16: true},
	{batch: 1, tq: 300, tk: 330, heads: 2, kvHeads: 1, d: 24, whole: true, before: 340, window: 100, bf16: true},
	{batch: 1, tq: 70, tk: 50, heads: 2, kvHeads: 1, d: 24, whole: true, before: 60, window: 40, cap: 2, bf16: true},
	// Whole tiles of keys before the queries.
	{batch: 2, tq: 70, tk: 128, heads: 4, kvHeads: 2, d: 64, whole: true, before: 300, of: 400, p: 0.3, first: 9, bf16: true},
	{batch: 1, tq: 130, tk: 256, heads: 2, kvHeads: 1, d: 24, whole: true, onto: 128, views: true, bf16: true},
	{batch: 1, tq: 128, tk: 128, heads: 2, kvHeads: 1, d: 100, whole: true, cap: 2, onto: 20, bf16: true},

	// Documents that share a sequence.
	{batch: 2, tq: 17, tk: 17, heads: 6, kvHeads: 2, d: 5, docs: oneDoc},
	{batch: 1, tq: 1, tk: 1, heads: 1, kvHeads: 1, d: 1, docs: tokenDocs},
	{batch: 2, tq: 70, tk: 70, heads: 4, kvHeads: 2, d: 16, docs: tokenDocs, p: 0.3, first: 1_000_003},
	{batch: 2, tq: 97, tk: 97, heads: 3, kvHeads: 1, d: 33, docs: middleDoc, views: true},
	{batch: 2, tq: 70, tk: 103, heads: 2, kvHeads: 1, d: 72, docs: shortDocs, factor: 0.3, cap: 2},
	{batch: 2, tq: 330, tk: 330, heads: 2, kvHeads: 1, d: 8, docs: longDocs, p: 0.3, first: 77},
	{batch: 1, tq: 330, tk: 330, heads: 1, kvHeads: 1, d: 8, docs: longDocs, window: 20},
	{batch: 1, tq: 620, tk: 620, heads: 1, kvHeads: 1, d: 4, docs: middleDoc, of: 700, p: 0.2, first: 3},
	{batch: 2, tq: 70, tk: 90, heads: 2, kvHeads: 1, d: 24, docs: anyStarts},
	{batch: 1, tq: 70, tk: 97, heads: 2, kvHeads: 1, d: 100, docs: anyStarts},
	{batch: 1, tq: 330, tk: 600, heads: 2, kvHeads: 1, d: 8, docs: anyStarts, window: 40, cap: 3},
	{batch: 3, tq: 1, tk: 333, heads: 4, kvHeads: 1, d: 16, docs: anyStarts},
	{batch: 2, tq: 20, tk: 20, heads: 2, kvHeads: 2, d: 9, docs: hiddenKeys},
	{batch: 1, tq: 300, tk: 590, heads: 1, kvHeads: 1, d: 4, docs: hiddenKeys},
	{batch: 2, tq: 33, tk: 40, heads: 4, kvHeads: 2, d: 5, whole: true, before: 40, window: 35, of: 80, p: 0.3, first: 1_000_003,
		docs: anyStarts},
	{batch: 1, tq: 300, tk: 330, heads: 2, kvHeads: 1, d: 24, whole: true, before: 340, docs: middleDoc, views: true},
	{batch: 1, tq: 97, tk: 97, heads: 2, kvHeads: 1, d: 16, docs: shortDocs, onto: 330},
	{batch: 2, tq: 40, tk: 40, heads: 2, kvHeads: 1, d: 7, whole: true, docs: hiddenKeys, onto: 19},
	{batch: 2, tq: 40, tk: 40, heads: 2, kvHeads: 1, d: 7, whole: true, docs: anyStarts, onto: 300, cap: 3, window: 20, before: 40},

	{batch: 1, tq: 1, tk: 1, heads: 1, kvHeads: 1, d: 1, docs: tokenDocs, bf16: true},
	{batch: 2, tq: 31, tk: 65, heads: 6, kvHeads: 3, d: 7, docs: oneDoc, bf16: true},
	{batch: 1, tq: 130, tk: 130, heads: 2, kvHeads: 2, d: 64, docs: shortDocs, views: true, bf16: true},
	{batch: 1, tq: 200, tk: 200, heads: 4, kvHeads: 2, d: 64, docs: longDocs, p: 0.3, first: 1_000_003, bf16: true},
	{batch: 2, tq: 150, tk: 161, heads: 2, kvHeads: 1, d: 128, docs: middleDoc, bf16: true},
	{batch: 1, tq: 330, tk: 330, heads: 2, kvHeads: 1, d: 72, docs: longDocs, window: 50, bf16: true},
	{batch: 1, tq: 130, tk: 300, heads: 2, kvHeads: 1, d: 24, docs: anyStarts, bf16: true},
	{batch: 1, tq: 97, tk: 130, heads: 2, kvHeads: 1, d: 128, cap: 2, docs: anyStarts, bf16: true},
	{batch: 2, tq: 33, tk: 33, heads: 2, kvHeads: 1, d: 40, cap: 3, p: 0.3, first: 5, docs: shortDocs, bf16: true},
	{batch: 1, tq: 97, tk: 97, heads: 2, kvHeads: 1, d: 128, p: 0.3, first: 9, docs: shortDocs, bf16: true},
	{batch: 1, tq: 70, tk: 97, heads: 2, kvHeads: 1, d: 64, cap: 3, docs: anyStarts, bf16: true},
	{batch: 2, tq: 70, tk: 70, heads: 2, kvHeads: 1, d: 16, docs: tokenDocs, p: 0.2, factor: 0.1, bf16: true},
	{batch: 1, tq: 140, tk: 140, heads: 1, kvHeads: 1, d: 64, docs: hiddenKeys, bf16: true},
	{batch: 1, tq: 97, tk: 97, heads: 2, kvHeads: 1, d: 16, docs: shortDocs, onto: 330, bf16: true},
	{batch: 2, tq: 90, tk: 128, heads: 2, kvHeads: 1, d: 32, whole: true, docs: anyStarts, onto: 256, bf16: true},
	{batch: 1, tq: 97, tk: 256, heads: 2, kvHeads: 2, d: 72, whole: true, docs: hiddenKeys, bf16: true},
}

// offset is the position of the first query, where the first key has position 0.
func (a attention) offset() int {
	if a.whole {
		return max(a.before, a.tk)
	}
	return a.tk - a.tq
}

// attended are the tensors of a recorded attention.
type attended struct {
	attention
	opts            tensorops.AttentionOpts
	q, k, v, o, lse tensorops.Tensor
	rowsQ, rowsK    int
	widthQ, widthK  int
}

// record draws the inputs and records the forward operation.
func (a attention) record(b *builder) attended {
	r := attended{
		attention: a,
		opts: tensorops.AttentionOpts{
			Batch: a.batch, Heads: a.heads, KVHeads: a.kvHeads, Window: a.window, Whole: a.whole, Before: a.before, Of: a.of,
			Starts: a.docs.starts(b, a.batch, a.tq, a.tk, a.offset()), Scale: a.factor, SoftCap: a.cap,
			Mask: tensorops.Mask{Key: rng.NewKey(9, 4), Step: 2, First: a.first, P: a.p},
			BF16: a.bf16,
		},
		rowsQ: a.batch * a.tq, rowsK: a.batch * a.tk,
		widthQ: a.heads * a.d, widthK: a.kvHeads * a.d,
	}
	r.q, r.k, r.v = r.inputs(b)
	r.o, r.lse = b.garbage(r.rowsQ, r.widthQ), b.garbage32(a.batch, a.heads, a.tq)
	b.Attention(r.o, r.q, r.k, r.v, r.lse, r.opts)
	if a.onto > 0 {
		again := r.opts
		again.Whole, again.Onto, again.Before = true, true, a.onto
		again.Starts = a.docs.starts(b, a.batch, a.tq, a.onto, a.onto)
		rows := a.batch * a.onto
		b.Attention(r.o, r.q, b.normal(rows, r.widthK), b.normal(rows, r.widthK), r.lse, again)
	}
	return r
}

// inputs are three matrices, or three views: of one when queries and keys are of
// the same rows, else of framed ones.
func (r attended) inputs(b *builder) (q, k, v tensorops.Tensor) {
	scale := max(r.scale, 1)
	switch {
	case !r.views:
		return b.spread(0, scale, r.rowsQ, r.widthQ), b.normal(r.rowsK, r.widthK), b.normal(r.rowsK, r.widthK)
	case r.tq == r.tk:
		return r.split(b.normal(r.rowsQ, r.widthQ+2*r.widthK))
	}
	_, q = b.framed(r.rowsQ, r.widthQ)
	_, k = b.framed(r.rowsK, r.widthK)
	_, v = b.framed(r.rowsK, r.widthK)
	return q, k, v
}

// split cuts a fused matrix in its three parts.
func (r attended) split(t tensorops.Tensor) (q, k, v tensorops.Tensor) {
	return t.Columns(0, r.widthQ), t.Columns(r.widthQ, r.widthQ+r.widthK), t.Columns(r.widthQ+r.widthK, t.Cols())
}

// conditioned loosens a tolerance: a score is a sum of D terms, and its rounding,
// which grows with its size, goes into an exponential.
func (r attended) conditioned(o *output) {
	o.loosen(max(r.scale, 1) * math.Sqrt(max(float64(r.d)/16, 1)))
	if r.onto > 0 {
		o.loosen(2) // two operations
	}
	if r.bf16 {
		o.loosen(roundedBF16)
	}
}

// roundedBF16 loosens the tolerance of attention to one ulp of bfloat16, of the largest
// magnitude, and that of its gradient to two. The oracle rounds nothing; a device rounds
// what it multiplies, once and by half an ulp at most, and in sums most of it cancels.
const roundedBF16 = 1 << 13

func (r attended) checkForward(b *builder) {
	r.conditioned(b.check(r.o, "o"))
	r.conditioned(b.check(r.lse, "lse").scaled(1))
}

func (r attended) checkGrad(b *builder) {
	do := b.normal(r.rowsQ, r.widthQ)
	grad := func(dq, dk, dv tensorops.Tensor) {
		b.AttentionGrad(dq, dk, dv, do, r.q, r.k, r.v, r.o, r.lse, r.opts)
	}
	if r.views && r.tq == r.tk {
		d := b.garbage(r.rowsQ, r.widthQ+2*r.widthK)
		grad(r.split(d))
		r.conditioned(b.check(d, "dq, dk, dv"))
		return
	}
	output := func(rows, cols int) (whole, view tensorops.Tensor) {
		if !r.views {
			t := b.garbage(rows, cols)
			return t, t
		}
		whole, view = b.framed(rows, cols)
		b.Fill(whole, math.NaN())
		return whole, view
	}
	wholeQ, dq := output(r.rowsQ, r.widthQ)
	wholeK, dk := output(r.rowsK, r.widthK)
	wholeV, dv := output(r.rowsK, r.widthK)
	grad(dq, dk, dv)
	// With one key the probability is 1 and dq, dk nothing but rounding.
	r.conditioned(b.check(wholeQ, "dq").scaled(1))
	r.conditioned(b.check(wholeK, "dk").scaled(1))
	r.conditioned(b.check(wholeV, "dv").scaled(1))
}
