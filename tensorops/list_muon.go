package tensorops

import (
	"fmt"
	"math"
)

// The constants of Muon (Jordan 2024, github.com/KellerJordan/Muon), as in torch.optim.Muon. The quintic moves every singular value
// in (0, 1] near 1: five times are enough for an update.
const (
	muonA, muonB, muonC = 3.4445, -4.7750, 2.0315
	muonSteps           = 5
	muonEps             = 1e-7 // the least norm to divide by
)

// MuonOpts holds the numbers of one update.
type MuonOpts struct {
	LR, Momentum, WeightDecay float64
	GradScale                 float64 // factor applied to the gradient first
	// Factor multiplies LR for the orthogonal matrix, but not for the decay: see MuonMatchRMS and MuonOriginal.
	Factor float64
	// Rows and Cols are the size of each matrix in the tensor. Each is made orthogonal by itself. Blocks says how several matrices lie
	// in it: the tensor's elements are that many rows, and each row has an equal range of elements of each matrix, one after another.
	Rows, Cols, Blocks int
	BF16               bool   // products round to bfloat16, as MatMulOpts.BF16
	ClearGrad          bool   // set the gradient to 0 for the next step
	Copy               Tensor // receives the new weight in bfloat16; may be invalid
}

// MuonMatchRMS is the factor by which a matrix's update is as long as AdamW's usually is, so that both take one rate (Liu et al. 2025,
// arXiv 2502.16982; "match_rms_adamw" of torch.optim.Muon).
func MuonMatchRMS(out, in int) float64 { return 0.2 * math.Sqrt(float64(max(out, in))) }

// MuonOriginal is the factor of the first Muon ("original" of torch.optim.Muon).
func MuonOriginal(out, in int) float64 { return math.Sqrt(max(1, float64(out)/float64(in))) }

// Muon records one update with Nesterov momentum and decoupled weight decay: with g' = GradScale·g,
//
//	m = Momentum·m + (1−Momentum)·g'
//	u = Momentum·m + (1−Momentum)·g'
//	w −= LR·(WeightDecay·w + Factor·orthogonal(u))
//
// where orthogonal(u) is five Newton-Schulz steps from u/‖u‖. It records products and other operations, which allocate from the list's
// arena, and a Call, so that a device whose memory the host cannot address refuses it.
func (l *List) Muon(w, m, g Tensor, o MuonOpts) {
	if l.err == nil && !o.whole(w) {
		l.err = fmt.Errorf("%w: muon w=%v: %s", ErrShape, w, o.matrices())
	}
	u := l.Alloc(Float32, w.Shape()...)
	l.Nesterov(u, m, g, o)
	u = l.Orthogonal(u, o)
	l.MuonStep(w, u, o)
	l.Free(u)
	if o.ClearGrad {
		l.Fill(g, 0)
	}
}

// Nesterov records the new m and u of Muon, of all elements of the matrices or of some.
func (l *List) Nesterov(u, m, g Tensor, o MuonOpts) {
	if l.err == nil && (!dense(Float32, u, m, g) || !sameLen(u, m, g)) {
		l.err = fmt.Errorf("%w: momentum u=%v m=%v g=%v: they are contiguous float32 tensors of one length", ErrShape, u, m, g)
	}
	if l.err != nil {
		return
	}
	none, toward := Tensor{}, (1-o.Momentum)*o.GradScale
	l.AddScaled(m, m, none, o.Momentum)
	l.AddScaled(m, g, m, toward)
	l.AddScaled(u, m, none, o.Momentum)
	l.AddScaled(u, g, u, toward)
}

// Orthogonal records orthogonal(u) of Muon, of each matrix in u. It takes u, which Alloc has returned, and returns the result, of the
// same length.
func (l *List) Orthogonal(u Tensor, o MuonOpts) Tensor {
	n := o.Rows * o.Cols
	if l.err == nil && (!dense(Float32, u) || !o.whole(u)) {
		l.err = fmt.Errorf("%w: orthogonal u=%v: %s", ErrShape, u, o.matrices())
	}
	if l.err != nil {
		return u
	}
	count := u.Len() / n
	if count == 1 {
		return l.orthogonal(u.View(o.Rows, o.Cols), o.BF16)
	}
	all, width := u.View(o.Blocks, u.Len()/o.Blocks), n/o.Blocks
	for k := range count {
		part := all.Columns(k*width, (k+1)*width)
		x := l.Alloc(Float32, o.Rows, o.Cols)
		l.Copy(x.View(o.Blocks, width), part)
		x = l.orthogonal(x, o.BF16)
		l.Copy(part, x.View(o.Blocks, width))
		l.Free(x)
	}
	return u
}

// MuonStep records the new w of Muon, of all elements of the matrices or of some. u has those of orthogonal(u).
func (l *List) MuonStep(w, u Tensor, o MuonOpts) {
	if l.err == nil && (!dense(Float32, w, u) || !sameLen(w, u) || !copyFits(o.Copy, w)) {
		l.err = fmt.Errorf("%w: muon w=%v u=%v copy=%v: w and u are contiguous float32 tensors of one length", ErrShape, w, u, o.Copy)
	}
	if l.err != nil {
		return
	}
	l.AddScaled(w, w, Tensor{}, 1-float64(o.LR*o.WeightDecay)) // not fused with the subtraction, as arm64 would
	l.AddScaled(w, u, w, -o.LR*o.Factor)
	if o.Copy.Valid() {
		l.Copy(o.Copy, w)
	}
}

// whole reports whether a tensor has a whole number of the matrices, and a block an equal part of each.
func (o MuonOpts) whole(t Tensor) bool {
	n := o.Rows * o.Cols
	return n > 0 && t.Len() > 0 && t.Len()%n == 0 && o.Blocks > 0 && n%o.Blocks == 0
}

func (o MuonOpts) matrices() string {
	return fmt.Sprintf("%d×%d matrices in %d blocks: it is a contiguous float32 tensor with a whole number of matrices, and a block has "+
		"an equal part of each", o.Rows, o.Cols, o.Blocks)
}

// orthogonal records the nearest orthogonal matrix of x, roughly: all singular values come near 1. It takes x and returns the result.
func (l *List) orthogonal(x Tensor, bf16 bool) Tensor {
	norm := l.Alloc(Float64, 1)
	l.SquaredNorm(norm, x)
	l.Call(Call{Name: "muon", Reads: []Tensor{norm}, Writes: []Tensor{x}, Func: divideByNorm})
	l.Free(norm)
	y, tall := l.AllocLike(x), x.Rows() > x.Cols()
	small := min(x.Rows(), x.Cols())
	a, b := l.Alloc(Float32, small, small), l.Alloc(Float32, small, small)
	none, product := Tensor{}, MatMulOpts{BF16: bf16}
	for range muonSteps {
		// A = X·Xᵀ, or Xᵀ·X of a tall matrix, which is the smaller one; X = aX + (bA + cA²)·X.
		l.MatMul(a, x, x, MatMulOpts{TransA: tall, TransB: !tall, BF16: bf16, Symmetric: true})
		l.MatMul(b, a, a, MatMulOpts{BF16: bf16, Symmetric: true})
		l.AddScaled(a, a, none, muonB)
		l.AddScaled(b, b, a, muonC)
		if tall {
			l.MatMul(y, x, b, product)
		} else {
			l.MatMul(y, b, x, product)
		}
		l.AddScaled(y, x, y, muonA)
		x, y = y, x
	}
	l.Free(a)
	l.Free(b)
	l.Free(y)
	return x
}

// divideByNorm divides a matrix by its norm, whose square is given. In one pass of one core, this is little beside the products.
func divideByNorm(reads, writes []Array) error {
	factor := float32(1 / max(math.Sqrt(reads[0].Double[0]), muonEps))
	x := writes[0].Float
	for i := range x {
		x[i] *= factor
	}
	return nil
}
