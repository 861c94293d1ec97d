package cpu

import "github.com/troupe-ml/troupe/tensorops"

// A causal convolution is split into parts: a block of rows of a sequence, and some of the channels. An
// element is made in the same way in every split: its taps are added in ascending order.
const (
	convRows     = 64  // of a part
	convChannels = 512 // of a part; also at most the length of vec's ones
	// convColumns is the number of channels that a part of the weights' gradient has, over all rows.
	convColumns = 128
)

// taps is a convolution of the operation under way.
type taps struct {
	*exec
	x, state  values
	starts    starts    // of documents
	stride    int       // of x
	channels  int       // C
	positions int       // T
	w         []float32 // K×C: the weights by tap
	k         int
	cache     []float32 // rows of x, widened, by position modulo K
	at        []int     // their positions
}

// newTaps views a convolution's operands in the first two slots.
func (x *exec) newTaps(in, weight, state tensorops.Tensor, o tensorops.ConvOpts) taps {
	k := weight.Cols()
	return taps{exec: x, x: x.values(0, in), state: x.values(1, state), starts: startsOf(o.Starts), stride: in.Stride(), channels: in.Cols(),
		positions: in.Rows() / o.Batch, w: x.byTap, k: k}
}

// byTaps transposes the weights, for all cores.
func (x *exec) byTaps(weight tensorops.Tensor) {
	c, k := weight.Rows(), weight.Cols()
	x.byTap = scratch(&x.byTap, c*k)
	for j, v := range f32(weight) {
		x.byTap[j%k*c+j/k] = v
	}
}

// input is what row t of sequence b has in the channels [lo, hi); nil: zeros. Of bfloat16 it is a copy, of
// which the last K rows of a part last.
func (p *taps) input(b, t, lo, hi int) []float32 {
	in, at := p.x, (b*p.positions+t)*p.stride
	if t < 0 {
		if in = p.state; !in.half() && in.f == nil {
			return nil
		}
		at = (b*(p.k-1) + p.k - 1 + t) * p.channels
	}
	if !in.half() {
		return in.f[at+lo : at+hi]
	}
	slot := (t + p.k) % p.k
	row := p.cache[slot*convChannels:][:hi-lo]
	if p.at[slot] != t {
		p.dev.kernels.vec.FromBF16(row, in.h[at+lo:at+hi])
		p.at[slot] = t
	}
	return row
}

// begin forgets the rows of another part.
func (p *taps) begin() {
	if p.cache == nil {
		p.cache, p.at = make([]float32, p.k*convChannels), make([]int, p.k)
	}
	for i := range p.at {
		p.at[i] = -p.k
	}
}

// sees reports whether row t of sequence b reads row from.
func (p *taps) sees(b, t, from int) bool {
	return p.starts == nil || from >= min(p.starts.at(b*p.positions+t), t)
}

// sum stores Σ w[k]·x[t−K+1+k] of the channels from lo on.
func (p *taps) sum(dst []float32, b, t, lo int) {
	hi, any := lo+len(dst), false
	for k := range p.k {
		from := t - p.k + 1 + k
		if !p.sees(b, t, from) {
			continue
		}
		row := p.input(b, from, lo, hi)
		if row == nil {
			continue
		}
		w := p.w[k*p.channels+lo : k*p.channels+hi]
		if any {
			p.dev.kernels.vec.MulPlus(dst, row, w, dst)
		} else {
			p.dev.kernels.vec.Mul(dst, row, w)
		}
		any = true
	}
}

// convParts runs ranges of (sequence, block of rows, channels).
func (x *exec) convParts(in tensorops.Tensor, batch int, run rangeFunc) error {
	return x.parallel(batch*ceil(in.Rows()/batch, convRows)*ceil(in.Cols(), convChannels), 1, run)
}

// part is where a part of convParts lies.
func (p *taps) part(i int) (b, t0, t1, lo, hi int) {
	blocks, across := ceil(p.positions, convRows), ceil(p.channels, convChannels)
	lo = i % across * convChannels
	t0 = i / across % blocks * convRows
	return i / across / blocks, t0, min(t0+convRows, p.positions), lo, min(lo+convChannels, p.channels)
}

func (x *exec) causalConv() error {
	a := x.op.CausalConv()
	x.byTaps(a.Weight)
	if err := x.convParts(a.X, a.Batch, causalConv); err != nil || !a.State.Valid() || a.Weight.Cols() == 1 {
		return err
	}
	return x.parallel(a.Batch, 1, convState)
}

func causalConv(x *exec, lo, hi int) {
	a := x.op.CausalConv()
	p, y := x.newTaps(a.X, a.Weight, a.State, a.ConvOpts), x.values(2, a.Y)
	for i := lo; i < hi; i++ {
		p.begin()
		b, t0, t1, c0, c1 := p.part(i)
		sum := scratch(&x.rows, c1-c0)
		for t := t0; t < t1; t++ {
			p.sum(sum, b, t, c0)
			at := (b*p.positions+t)*p.channels + c0
			out := x.room(y, at, at+c1-c0)
			x.dev.kernels.vec.SiLU(out, sum)
			x.put(y, at, out)
		}
	}
}

// convState stores the last K−1 rows of a range of sequences.
func convState(x *exec, lo, hi int) {
	a := x.op.CausalConv()
	rows, t, c := a.Weight.Cols()-1, a.X.Rows()/a.Batch, a.X.Cols()
	in, state := x.values(0, a.X), x.values(1, a.State)
	for b := lo; b < hi; b++ {
		for i := range rows {
			to := (b*rows + i) * c
			if from := t - rows + i; from >= 0 {
				x.convert(state, to, in, (b*t+from)*a.X.Stride(), c)
			} else {
				x.convert(state, to, state, (b*rows+i+t)*c, c)
			}
		}
	}
}

func (x *exec) causalConvGrad() error {
	a := x.op.CausalConvGrad()
	x.byTaps(a.Weight)
	return x.convParts(a.X, a.Batch, causalConvGrad)
}

// gradRows are ds of some rows, by position modulo K.
type gradRows struct {
	*taps
	dy         values
	ds         []float32
	sum, spare []float32
	inputs     []float32 // dy, widened
}

func (p *taps) gradRows(dy values, width int) gradRows {
	all := scratch(&p.rows, (p.k+3)*width)
	return gradRows{taps: p, dy: dy, ds: all[:p.k*width], sum: all[p.k*width:][:width], spare: all[(p.k+1)*width:][:width],
		inputs: all[(p.k+2)*width:][:width]}
}

// grad makes ds of row t in the channels [lo, hi).
func (g *gradRows) grad(b, t, lo, hi int) []float32 {
	n := hi - lo
	ds := g.ds[t%g.k*len(g.sum):][:n]
	g.taps.sum(g.sum[:n], b, t, lo)
	at := (b*g.positions+t)*g.channels + lo
	dy := g.inputs[:n]
	if g.dy.half() {
		g.dev.kernels.vec.FromBF16(dy, g.dy.h[at:at+n])
	} else {
		dy = g.dy.f[at : at+n]
	}
	g.dev.kernels.vec.SiLUGrad(ds, dy, g.sum[:n], g.spare)
	return ds
}

func causalConvGrad(x *exec, lo, hi int) {
	a := x.op.CausalConvGrad()
	p, dx := x.newTaps(a.X, a.Weight, tensorops.Tensor{}, a.ConvOpts), x.values(2, a.DX)
	g := p.gradRows(x.values(3, a.DY), min(convChannels, p.channels))
	for i := lo; i < hi; i++ {
		p.begin()
		b, t0, t1, c0, c1 := p.part(i)
		made := t0
		for t := t0; t < t1; t++ {
			for ; made < min(t+p.k, p.positions); made++ {
				g.grad(b, made, c0, c1)
			}
			at := (b*p.positions+t)*a.DX.Stride() + c0
			out := x.room(dx, at, at+c1-c0)
			// In ascending order of the taps: the latest row first.
			added := false
			for k := max(0, t+p.k-p.positions); k < p.k; k++ {
				if !p.sees(b, t+p.k-1-k, t) {
					continue
				}
				ds := g.ds[(t+p.k-1-k)%p.k*len(g.sum):][:c1-c0]
				w := p.w[k*p.channels+c0 : k*p.channels+c1]
				if added {
					x.dev.kernels.vec.MulPlus(out, ds, w, out)
				} else {
					x.dev.kernels.vec.Mul(out, ds, w)
				}
				added = true
			}
			x.put(dx, at, out)
		}
	}
}

func (x *exec) causalConvWeightGrad() error {
	a := x.op.CausalConvWeightGrad()
	x.byTaps(a.Weight)
	return x.parallel(ceil(a.X.Cols(), convColumns), 1, causalConvWeightGrad)
}

// causalConvWeightGrad takes a range of parts of the channels, each over all rows: blocks of rows are
// added in float32, and the blocks in float64.
func causalConvWeightGrad(x *exec, lo, hi int) {
	a := x.op.CausalConvWeightGrad()
	p := x.newTaps(a.X, a.Weight, tensorops.Tensor{}, a.ConvOpts)
	width := min(convColumns, p.channels)
	g := p.gradRows(x.values(3, a.DY), width)
	block, total := make([]float32, p.k*width), make([]float64, p.k*width)
	for i := lo; i < hi; i++ {
		c0, c1 := i*convColumns, min((i+1)*convColumns, p.channels)
		clear(total)
		for b := range a.Batch {
			p.begin()
			for t0 := 0; t0 < p.positions; t0 += sumBlock {
				clear(block)
				for t := t0; t < min(t0+sumBlock, p.positions); t++ {
					ds := g.grad(b, t, c0, c1)
					for k := max(0, p.k-1-t); k < p.k; k++ {
						from := t - p.k + 1 + k
						if !p.sees(b, t, from) {
							continue
						}
						sum := block[k*width:][:c1-c0]
						x.dev.kernels.vec.MulPlus(sum, ds, p.input(b, from, c0, c1), sum)
					}
				}
				for j, v := range block {
					total[j] += float64(v)
				}
			}
		}
		for c := c0; c < c1; c++ {
			for k := range p.k {
				f32(a.DWeight)[c*p.k+k] += float32(total[k*width+c-c0])
			}
		}
	}
}
