package tensorops

// SquaredNorm records out[0] = Σ x² in float64: blocks of a fixed size, added in
// ascending order. T: out, x.
func (l *List) SquaredNorm(out, x Tensor) {
	l.need(l.op(KindSquaredNorm, out, x), dense(Float64, out) && dense(Float32, x) && out.Len() == 1, "one float64 for a float32 tensor")
}

// AdamWOpts are the numbers of one update.
type AdamWOpts struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	GradScale                          float64 // the gradient is multiplied by it first
	Step                               int     // from 1, for the bias correction
	ClearGrad                          bool    // set the gradient to 0, for the next step to add to
}

// AdamW records one update by decoupled weight decay (Loshchilov, Hutter 2019):
// w −= LR·(WeightDecay·w + m̂/(√v̂ + Eps)). T: w, m, v, g.
// F: LR, Beta1, Beta2, Eps, WeightDecay, GradScale. I: step.
func (l *List) AdamW(w, m, v, g Tensor, a AdamWOpts) {
	o := l.op(KindAdamW, w, m, v, g)
	o.F = [8]float64{a.LR, a.Beta1, a.Beta2, a.Eps, a.WeightDecay, a.GradScale}
	o.I[0] = a.Step
	o.set(FlagClear, a.ClearGrad)
	l.need(o, dense(Float32, w, m, v, g) && sameLen(w, m, v, g) && a.Step >= 1, "all have the same number of elements, and the step (size 0) counts from 1")
}

// SGDOpts are the numbers of one update.
type SGDOpts struct {
	LR, Momentum, WeightDecay float64
	GradScale                 float64
}

// SGD records one update: d = g·GradScale + WeightDecay·w; m = Momentum·m + d;
// w −= LR·m. Without a momentum tensor, w −= LR·d. T: w, m, g.
// F: LR, Momentum, WeightDecay, GradScale.
func (l *List) SGD(w, m, g Tensor, s SGDOpts) {
	o := l.op(KindSGD, w, m, g)
	o.F = [8]float64{s.LR, s.Momentum, s.WeightDecay, s.GradScale}
	l.need(o, dense(Float32, w, g) && sameLen(w, g) && optional(m, w.Len()), needSame)
}
