package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// CrossEntropy is the loss of a classifier: the negative logarithm of the probability that the
// softmax of the logits, [B, …, classes], gives the label. Its metric "accuracy" is the share of
// labels with the largest logit. Labels of −1 are ignored.
//
// Forward-only runs may collect "logits".
type CrossEntropy struct {
	field   string
	classes int
}

// NewCrossEntropy makes a CrossEntropy whose labels are a field of the data.
func NewCrossEntropy(field string, classes int) *CrossEntropy { return &CrossEntropy{field, classes} }

func (*CrossEntropy) builtIn()             {}
func (*CrossEntropy) Params() []LayerParam { return nil }

// Fields returns the name of the labels' field.
func (l *CrossEntropy) Fields() []string { return []string{l.field} }

// FLOPs returns a few operations for each logit.
func (l *CrossEntropy) FLOPs() float64 { return 10 * float64(l.classes) }

// guesses holds, in host memory, what accuracy is counted from.
type guesses struct {
	logits []float32
	labels []int32
}

const classifierGrad = 0

// Forward computes the loss and, in training, its gradient.
func (l *CrossEntropy) Forward(p *Pass, in []tensorops.Tensor) []tensorops.Tensor {
	logits, labels := in[0], p.Field(l.field)
	if p.Err() != nil {
		return nil
	}
	if labels.DType() != tensorops.Int32 || labels.Len() != logits.Rows() || logits.Cols() != l.classes {
		p.Fail(fmt.Errorf("%w: logits %v and labels %v: it takes rows of %d logits and an int32 label for each row, but the layer before has %d rows and the field %q has %d labels", ErrInput, logits, labels, l.classes, logits.Rows(), l.field, labels.Len()))
		return nil
	}
	rows, g := logits.Rows(), guessesOf(p)
	stats, lse := p.Alloc(tensorops.Float64, 1, tensorops.LossStats), p.Alloc(tensorops.Float64, rows, 1)
	var o tensorops.CrossEntropyOpts
	if p.Train() {
		o = tensorops.CrossEntropyOpts{Grad: p.AllocLike(logits), Scale: 1}
		p.Save(classifierGrad, o.Grad)
	}
	p.CrossEntropy(stats, lse, logits.Matrix(), labels.View(rows, 1), tensorops.CrossEntropyOpts{Grad: o.Grad.Matrix(), Scale: o.Scale})
	p.Fetch(tensorops.HostBytes(p.Host(tensorops.LossStats)), stats)
	g.logits, g.labels = room(g.logits, logits.Len()), room(g.labels, rows)
	p.Fetch(tensorops.HostBytes(g.logits), logits)
	p.Fetch(tensorops.HostBytes(g.labels), labels)
	p.Free(stats)
	p.Free(lse)
	p.Collect("logits", logits)
	return nil
}

func guessesOf(p *Pass) *guesses {
	g, ok := (*p.State()).(*guesses)
	if !ok {
		g = &guesses{}
		*p.State() = g
	}
	return g
}

// room returns s with n elements.
func room[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

// InputGrad returns the gradient that Forward has computed.
func (l *CrossEntropy) InputGrad(p *Pass, _, _ []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{p.Saved(classifierGrad)}
}

// WeightGrad does nothing.
func (*CrossEntropy) WeightGrad(*Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// Report returns the loss, and counts the correct guesses.
func (l *CrossEntropy) Report(p *Pass) Report {
	g, host, right, all := guessesOf(p), p.Host(tensorops.LossStats), 0.0, 0.0
	for i, label := range g.labels {
		if label == tensorops.IgnoreTarget {
			continue
		}
		all++
		if argmax(g.logits[i*l.classes:][:l.classes]) == int(label) {
			right++
		}
	}
	return Report{Sum: host[0], Targets: host[1], Metrics: []Metric{{Name: "accuracy", Sum: right, Count: all}}}
}

// argmax returns the index of the largest number, the first of several.
func argmax(of []float32) int {
	best := 0
	for i, v := range of {
		if v > of[best] {
			best = i
		}
	}
	return best
}

// LossFunc is a program's own loss, computed in Go. It gets the values and the fields that the loss
// layer takes. In training, grads has an array for each value, which it must fill with the gradient
// of Report.Sum; otherwise grads is empty. It must not keep any of the arrays.
type LossFunc func(values, fields, grads []tensorops.Array) (Report, error)

// lossFunc is a LossFunc as a layer.
type lossFunc struct {
	what   string
	fields []string
	inputs int
	f      LossFunc
}

// NewLoss makes a loss layer from a function that takes a number of values and the named fields of
// the data. It runs on the CPU.
func NewLoss(what string, inputs int, fields []string, f LossFunc) LossLayer {
	return &lossFunc{what: what, fields: fields, inputs: inputs, f: f}
}

// NewMSE makes the loss Σ(x−y)² over the numbers of a field y, divided by their number. x must have
// as many numbers. Its metric "mae" is the mean of |x−y|. Sums are in float64.
func NewMSE(field string) LossLayer {
	return NewLoss("mse", 1, []string{field}, squaredError)
}

func squaredError(values, fields, grads []tensorops.Array) (r Report, err error) {
	x, y := values[0].Float, fields[0].Float
	if len(x) != len(y) {
		return r, fmt.Errorf("%w: there are %d numbers %v for %d targets %v: want as many targets, in float32", ErrInput, len(x), values[0].Shape,
			len(y),
			fields[0].Shape)
	}
	off := 0.0
	for i, v := range x {
		d := float64(v) - float64(y[i])
		r.Sum += float64(d * d) // not fused with the addition, as the compiler would on arm64
		off += max(d, -d)
		if len(grads) > 0 {
			grads[0].Float[i] = float32(2 * d)
		}
	}
	r.Targets = float64(len(x))
	r.Metrics = []Metric{{Name: "mae", Sum: off, Count: r.Targets}}
	return r, nil
}

func (*lossFunc) Params() []LayerParam { return nil }
func (l *lossFunc) Fields() []string   { return l.fields }

// lossState is the report of a lossFunc on a microbatch.
type lossState struct{ report Report }

func (l *lossFunc) Forward(p *Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if len(in) != l.inputs {
		p.Fail(fmt.Errorf("%w: the loss %s takes %d values, but the model passes %d", ErrInput, l.what, l.inputs, len(in)))
		return nil
	}
	s := &lossState{}
	*p.State() = s
	reads := append([]tensorops.Tensor{}, in...)
	for _, name := range l.fields {
		reads = append(reads, p.Field(name))
	}
	var grads []tensorops.Tensor // for each value, including those whose gradient is not needed
	for i, t := range in {
		p.Collect(outputName(i), t)
		if p.Train() {
			g := p.Alloc(tensorops.Float32, t.Shape()...)
			grads = append(grads, g)
			p.Save(i, g)
		}
	}
	p.Call(l.what, reads, grads, func(reads, writes []tensorops.Array) (err error) {
		s.report, err = l.f(reads[:len(in)], reads[len(in):], writes)
		return err
	})
	return nil
}

// outputName returns the name under which a loss's value is collected.
func outputName(i int) string {
	if i == 0 {
		return "predictions"
	}
	return fmt.Sprintf("predictions.%d", i)
}

func (l *lossFunc) InputGrad(p *Pass, in, _ []tensorops.Tensor) []tensorops.Tensor {
	din := make([]tensorops.Tensor, len(in))
	for i := range in {
		if p.WantsGrad(i) {
			din[i] = p.Saved(i)
		}
	}
	return din
}

func (*lossFunc) WeightGrad(*Pass, []tensorops.Tensor, []tensorops.Tensor) {}

func (*lossFunc) Report(p *Pass) Report {
	if s, ok := (*p.State()).(*lossState); ok {
		return s.report
	}
	return Report{}
}
