package layertest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// probe wraps the layer and observes its inputs and outputs.
type probe struct {
	rig   *rig
	layer stages.Layer
}

func (q *probe) Params() []stages.LayerParam { return q.layer.Params() }

func (q *probe) Outputs() int {
	if o, ok := q.layer.(stages.Outputs); ok {
		return o.Outputs()
	}
	return 1
}

func (q *probe) NoGrad(out int) bool {
	n, ok := q.layer.(stages.NoGrads)
	return ok && n.NoGrad(out)
}

func (q *probe) Fields() []string {
	if f, ok := q.layer.(stages.Fields); ok {
		return f.Fields()
	}
	return nil
}

func (q *probe) WholeBackward() bool {
	w, ok := q.layer.(stages.Whole)
	return ok && w.WholeBackward()
}

func (q *probe) Open() (stages.OpenLayer, error) {
	o, ok := q.layer.(stages.Opener)
	if !ok {
		return &openProbe{*q, nil}, nil
	}
	l, err := o.Open()
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fmt.Errorf("%w: Open returned neither a layer nor an error", stages.ErrModel)
	}
	return &openProbe{probe{q.rig, l}, l}, nil
}

// openProbe is a probe of an opened layer.
type openProbe struct {
	probe
	open stages.OpenLayer // nil: nothing to close
}

func (q *openProbe) Close() error {
	if q.open == nil {
		return nil
	}
	return q.open.Close()
}

// lossProbe is a probe of a loss layer.
type lossProbe struct{ probe }

func (q *lossProbe) Open() (stages.OpenLayer, error) {
	l, err := q.probe.Open()
	if err != nil {
		return nil, err
	}
	return &openLossProbe{*l.(*openProbe)}, nil
}

func (q *lossProbe) Report(p *stages.Pass) stages.Report { return q.report(p) }

type openLossProbe struct{ openProbe }

func (q *openLossProbe) Report(p *stages.Pass) stages.Report { return q.report(p) }

func (q *probe) report(p *stages.Pass) stages.Report {
	l, ok := q.layer.(stages.LossLayer)
	if !ok {
		return stages.Report{}
	}
	r := l.Report(p)
	q.rig.size += max(r.Sum, -r.Sum)
	return r
}

func (q *probe) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	done := q.watch(p, "Forward", in, nil, true)
	out := q.layer.Forward(p, slices.Clone(in))
	q.rig.calls = q.rig.calls || slices.ContainsFunc(p.Ops(), func(o tensorops.Op) bool { return o.Kind == tensorops.KindCall })
	done()
	if q.rig.watching {
		var all []tensorops.Array
		for _, t := range out {
			all = append(all, fetch(p, t))
		}
		q.rig.got.outputs[q.rig.microbatch] = all
	}
	return out
}

func (q *probe) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	done := q.watch(p, "InputGrad", in, dout, !q.WholeBackward())
	din := q.layer.InputGrad(p, slices.Clone(in), slices.Clone(dout))
	done()
	return din
}

func (q *probe) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	done := q.watch(p, "WeightGrad", in, dout, false)
	q.layer.WeightGrad(p, slices.Clone(in), slices.Clone(dout))
	done()
}

// seen holds a tensor before and after a method of the layer.
type seen struct {
	what, cause   string
	before, after tensorops.Array
}

const (
	ownWrite  = "Allocate an output with p.AllocLike; other layers use this tensor, too"
	gradWrite = "Compute weight gradients in WeightGrad, which may come much later. If the two cannot be computed separately, WholeBackward must return true"
)

// watch records copies of everything that a method must not change; the returned function records
// them again.
func (q *probe) watch(p *stages.Pass, method string, in, dout []tensorops.Tensor, grads bool) (done func()) {
	if !q.rig.watching {
		return func() {}
	}
	var ts []tensorops.Tensor
	var all []*seen
	add := func(t tensorops.Tensor, cause, format string, args ...any) {
		if t.Valid() {
			ts = append(ts, t)
			all = append(all, &seen{what: method + " writes to " + fmt.Sprintf(format, args...), cause: cause, before: fetch(p, t)})
		}
	}
	for i, t := range in {
		add(t, ownWrite, "%s", q.rig.inputName(i))
	}
	for i, t := range dout {
		add(t, ownWrite, "the gradient of output %d", i)
	}
	for i, param := range q.layer.Params() {
		add(p.Weight(i), "Only the optimizer may change weights", "the weight %q", param.Name)
		if grads {
			add(p.Grad(i), gradWrite, "Grad(%d), the gradient of %q", i, param.Name)
		}
	}
	return func() {
		for i, s := range all {
			s.after = fetch(p, ts[i])
		}
		if p.Err() == nil {
			q.rig.seen = append(q.rig.seen, all...)
		}
	}
}

// lookAt reports the changes after the list has completed.
func (r *rig) lookAt() {
	for _, s := range r.seen {
		if !bytes.Equal(s.before.Bytes(), s.after.Bytes()) {
			r.find("unchanged", "%s: %s. %s", s.what, firstDifference(s.after, s.before, "it was"), s.cause)
		}
	}
	r.seen = r.seen[:0]
}
