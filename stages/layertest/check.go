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

// Check reports what is wrong with a layer as errors of a test. The package's comment has the
// names that they begin with.
func Check(t testing.TB, l stages.Layer, o Options) {
	t.Helper()
	c := &checker{t: t, layer: l, o: o.withDefaults(), said: make(map[string]bool)}
	switch {
	case l == nil:
		c.find("forward", "the layer is nil")
		return
	case !reflect.DeepEqual(l.Params(), l.Params()):
		c.find("parameters", "Params returns other parameters at its second call: checkpoints and gradients know them by name and place")
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

// checker is a Check under way.
type checker struct {
	t     testing.TB
	layer stages.Layer
	o     Options
	said  map[string]bool
}

// find is an error; the same text is said once.
func (c *checker) find(check, format string, args ...any) {
	c.t.Helper()
	text := fmt.Sprintf("layertest: %s: %s: %s", c.o.Name, check, fmt.Sprintf(format, args...))
	if !c.said[text] {
		c.said[text] = true
		c.t.Errorf("%s", text)
	}
}

// trial is a way to run the layer. check names it in errors, where it fails.
type trial struct {
	check, order string
	device       func() (tensorops.Device, error)
	recompute    bool
}

func onCPU(threads int) func() (tensorops.Device, error) {
	return func() (tensorops.Device, error) { return cpu.New(cpu.Options{Threads: threads}) }
}

func oracle() (tensorops.Device, error) { return ref.New(), nil }

// try runs the layer on a device of its own, and has judge look at what came of it. False: it failed.
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
		c.find("memory", "%d bytes more are in use after %s than before. What Pass.Alloc gives must be returned, given to Pass.Save, or freed",
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

// plain is the order of a model in one stage.
const plain = "F0 B0 F1 B1 F2 B2"

// base runs the layer as one stage does.
func (c *checker) base() (o outcome, ok bool) {
	c.t.Helper()
	ok = c.try(trial{"forward", plain, onCPU(1), false}, func(r *rig) { o = r.got })
	return o, ok
}

const (
	keepsState = "Many microbatches are under way at a time: what belongs to one must be kept by Pass.Save or Pass.State, never in the layer"
	notAgain   = "Forward is recorded again before InputGrad, and must compute the same of the same: no random numbers but by Pass.Mask, no counting of calls"
)

// sameBits runs the layer in the other ways in which pipelines do.
func (c *checker) sameBits(base outcome) {
	c.t.Helper()
	for _, t := range []struct {
		trial
		cause string
	}{
		{trial{"repetition", plain, onCPU(1), false},
			"The same numbers must come of the same: nothing may depend on time, on chance, or on the order of a map"},
		{trial{"threads", plain, onCPU(2), false}, "How a sum is split must follow from shapes alone"},
		{trial{"split", "F0 I0 W0 F1 I1 W1 F2 I2 W2", onCPU(1), false}, "WeightGrad must compute the same right after InputGrad and later"},
		{trial{"in flight", "F0 F1 F2 B0 B1 B2", onCPU(1), false}, keepsState},
		{trial{"in flight", "F0 F1 F2 I0 I1 I2 W0 W1 W2", onCPU(2), false}, keepsState},
		{trial{"recomputation", plain, onCPU(1), true}, notAgain},
		{trial{"recomputation", "F0 F1 F2 I0 I1 W0 I2 W1 W2", onCPU(1), true}, notAgain},
	} {
		c.try(t.trial, func(r *rig) { r.compare(t.check, base, t.cause) })
	}
}

// accumulation looks whether the gradients of two microbatches add up.
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
				"gradient of parameter %q: element %s is %.6g after two microbatches, whose own are %.6g and %.6g. WeightGrad must add to Pass.Grad, which has the earlier microbatches' (MatMulOpts.Accumulate, and += in a Call)",
				name, place(sum.Shape, i), v, a.Float[i], b.Float[i])
			return
		}
	}
}

// forwardOnly runs it as validation does.
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

// recording runs it where nothing is computed, as planning does.
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
			"%v. Where memory is planned all is recorded and nothing computed: tensors have no numbers while a method records, only in a Call", err)
	}
	if err := r.stage.Close(); err != nil {
		c.find("closing", "%v", err)
	}
}

// gradients compares all gradients with slopes.
func (c *checker) gradients() {
	c.t.Helper()
	c.try(trial{"gradient", "F0 B0", oracle, false}, func(r *rig) {
		r.watching = false
		if err := r.slopes(); err != nil {
			r.find("gradient", "%v", err)
		}
	})
}
