package layertest

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// Check runs a layer in all ways that a pipeline may, and reports faults as errors of the test. The
// package comment lists the names with which they begin.
func Check(t testing.TB, l stages.Layer, o Options) {
	t.Helper()
	c := &checker{t: t, layer: l, o: o.withDefaults(), said: make(map[string]bool)}
	switch {
	case l == nil:
		c.find("forward", "the layer is nil")
		return
	case !reflect.DeepEqual(l.Params(), l.Params()):
		c.find("parameters", "Params returns other parameters in its second call: checkpoints and gradients refer to them by name and index")
		return
	}
	base, ok := c.base()
	if !ok {
		return
	}
	c.sameBits(base)
	c.accumulation()
	c.forwardOnly(base)
	c.recording()
	c.gradients()
}

// checker is a running Check.
type checker struct {
	t     testing.TB
	layer stages.Layer
	o     Options
	said  map[string]bool
}

// find reports an error of the test; it reports the same text only once.
func (c *checker) find(check, format string, args ...any) {
	c.t.Helper()
	text := fmt.Sprintf("layertest: %s: %s: %s", c.o.Name, check, fmt.Sprintf(format, args...))
	if !c.said[text] {
		c.said[text] = true
		c.t.Errorf("%s", text)
	}
}

// trial is one way to run the layer. check names it in errors if the run fails.
type trial struct {
	check, order string
	device       func() (tensorops.Device, error)
	recompute    bool
}

func onCPU(threads int) func() (tensorops.Device, error) {
	return func() (tensorops.Device, error) { return cpu.New(cpu.Options{Threads: threads}) }
}

func oracle() (tensorops.Device, error) { return ref.New(), nil }

// try runs the layer on its own device and passes the result to judge. It returns false if the run
// failed.
func (c *checker) try(t trial, judge func(r *rig)) bool {
	c.t.Helper()
	dev, err := t.device()
	if err != nil {
		c.find(t.check, "%v", err)
		return false
	}
	defer dev.Close()
	stream := dev.NewStream("layertest")
	r, err := newRig(c.layer, c.o, stream, c.find)
	if err != nil {
		c.find(t.check, "%v", err)
		return false
	}
	r.recompute = t.recompute
	before := dev.Memory().InUse
	err = r.passes(t.order)
	if err == nil {
		err = r.fetchGrads()
	}
	if after := dev.Memory().InUse; err == nil && after != before {
		c.find("memory", "%d more bytes are in use after %s than before. Return every tensor from Pass.Alloc, pass it to Pass.Save, or free it",
			after-before, t.order)
	}
	if err == nil && judge != nil {
		judge(r)
	}
	if err != nil {
		c.find(t.check, "%v", err)
	}
	if e := r.stage.Close(); e != nil {
		c.find("closing", "%v", e)
	}
	return err == nil
}

// plain is the order of passes of a model in one stage.
const plain = "F0 B0 F1 B1 F2 B2"

// base runs the layer as one stage does.
func (c *checker) base() (o outcome, ok bool) {
	c.t.Helper()
	ok = c.try(trial{"forward", plain, onCPU(1), false}, func(r *rig) { o = r.got })
	return o, ok
}

const (
	keepsState = "Many microbatches are in flight at a time: keep what belongs to one with Pass.Save or Pass.State, never in the layer"
	notAgain   = "Forward is recorded again before InputGrad and must compute the same result from the same input: draw random numbers only with Pass.Mask, and do not count calls"
)

// sameBits runs the layer in the other ways that pipelines do, and compares the bits.
func (c *checker) sameBits(base outcome) {
	c.t.Helper()
	for _, t := range []struct {
		trial
		cause string
	}{
		{trial{"repetition", plain, onCPU(1), false},
			"The same input must give the same result: nothing may depend on time, chance, or the order of a map"},
		{trial{"threads", plain, onCPU(2), false}, "Split a sum by shapes only, never by threads"},
		{trial{"split", "F0 I0 W0 F1 I1 W1 F2 I2 W2", onCPU(1), false}, "WeightGrad must compute the same right after InputGrad and later"},
		{trial{"in flight", "F0 F1 F2 B0 B1 B2", onCPU(1), false}, keepsState},
		{trial{"in flight", "F0 F1 F2 I0 I1 I2 W0 W1 W2", onCPU(2), false}, keepsState},
		{trial{"recomputation", plain, onCPU(1), true}, notAgain},
		{trial{"recomputation", "F0 F1 F2 I0 I1 W0 I2 W1 W2", onCPU(1), true}, notAgain},
	} {
		c.try(t.trial, func(r *rig) { r.compare(t.check, base, t.cause) })
	}
}

// accumulation checks whether the gradients of two microbatches are added.
func (c *checker) accumulation() {
	c.t.Helper()
	var parts [2]outcome
	for i, order := range []string{"F0 B0", "F1 B1"} {
		if !c.try(trial{"accumulation", order, onCPU(1), false}, func(r *rig) { parts[i] = r.got }) {
			return
		}
	}
	c.try(trial{"accumulation", "F0 B0 F1 B1", onCPU(1), false}, func(r *rig) {
		for i, p := range r.params {
			name := r.paramName(i)
			r.addsUp(p.Name, parts[0].grads[name], parts[1].grads[name], r.got.grads[name])
		}
	})
}

func (r *rig) addsUp(name string, a, b, sum tensorops.Array) {
	const rounding = 1e-4
	largest := 0.0
	for i := range sum.Float {
		largest = max(largest, math.Abs(float64(a.Float[i])), math.Abs(float64(b.Float[i])))
	}
	for i, v := range sum.Float {
		want := float64(a.Float[i]) + float64(b.Float[i])
		if off := math.Abs(float64(v) - want); !(off <= rounding*largest) {
			r.find("accumulation",
				"gradient of parameter %q: element %s is %.6g after two microbatches, whose own gradients are %.6g and %.6g. WeightGrad must add to Pass.Grad, which holds the gradients of earlier microbatches (use MatMulOpts.Accumulate, or += in a Call)",
				name, place(sum.Shape, i), v, a.Float[i], b.Float[i])
			return
		}
	}
}

// forwardOnly runs the layer as validation does.
func (c *checker) forwardOnly(base outcome) {
	c.t.Helper()
	c.try(trial{"forward only", "V0 V1 V2", onCPU(1), false}, func(r *rig) {
		for mb, outs := range r.got.outputs {
			for i, a := range outs {
				if is, want := describe(a), describe(base.outputs[mb][i]); is != want {
					r.find("forward only", "output %d of microbatch %d is %s, in training %s", i, mb, is, want)
				}
			}
		}
	})
}

// recording records the layer without computing anything, as planning does.
func (c *checker) recording() {
	c.t.Helper()
	r, err := newRig(c.layer, c.o, tensorops.NewDryStream(), c.find)
	if err != nil {
		c.find("recording", "%v", err)
		return
	}
	r.watching = false
	if err := r.passes("F0 F1 B0 I1 W1"); err != nil {
		c.find("recording",
			"%v. To plan memory, everything is recorded and nothing computed: tensors have numbers only in a Call, not while a method records", err)
	}
	if err := r.stage.Close(); err != nil {
		c.find("closing", "%v", err)
	}
}

// gradients compares all gradients with slopes of the loss.
func (c *checker) gradients() {
	c.t.Helper()
	c.try(trial{"gradient", "F0 B0", oracle, false}, func(r *rig) {
		r.watching = false
		if err := r.slopes(); err != nil {
			r.find("gradient", "%v", err)
		}
	})
}
