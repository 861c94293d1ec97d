package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// fromExact is how far numbers in float32 are from those that transformers computes in float64.
type fromExact struct {
	logits float64 // of the largest logit
	cached float64 // the same in generation with a cache
	grads  float64 // of a gradient, by norm: the largest of all weights
	mean   float64 // the root of the mean of the squares of all weights
}

func (f fromExact) String() string {
	return fmt.Sprintf("logits %.1e, generated %.1e, gradients at most %.1e, %.1e on average", f.logits, f.cached, f.grads, f.mean)
}

// magnifies reports whether the model magnifies rounding, so that two programs in float32 differ by more than the limits.
func (m *hfModel) magnifies() bool { return strings.Contains(filepath.Base(m.dir), "-eps") }

// chance is how much farther than transformers' Troupe's numbers may be on average, since both round by chance.
const chance = 1.25

// compareMagnified compares models that magnify rounding: on average, Troupe's numbers must be as close to those in
// float64 as transformers' own in float32.
func compareMagnified(t *testing.T, models []*hfModel) {
	if len(models) == 0 {
		return
	}
	mean := func(of func(m *hfModel) fromExact) (f fromExact) {
		for _, m := range models {
			one, n := of(m), float64(len(models))
			f.logits, f.cached = f.logits+one.logits/n, f.cached+one.cached/n
			f.grads, f.mean = f.grads+one.grads/n, f.mean+one.mean/n
		}
		return f
	}
	ours, theirs := mean(func(m *hfModel) fromExact { return m.ours }), mean(func(m *hfModel) fromExact { return m.theirs })
	t.Logf("%d models that magnify rounding, from float64, means: Troupe %v; transformers %v", len(models), ours, theirs)
	if ours.logits > chance*theirs.logits || ours.cached > chance*theirs.cached || ours.grads > chance*theirs.grads ||
		ours.mean > chance*theirs.mean {
		t.Errorf("Troupe's numbers are farther from float64 than transformers'")
	}
}

// exact is a tensor in float64.
func (m *hfModel) exact(t *testing.T, name string) []float64 {
	t.Helper()
	info, ok := m.expected.Info(name)
	b, err := m.expected.Bytes(name)
	if err != nil || !ok || info.DType != "F64" {
		t.Fatalf("%s: %+v, %v", name, info, err)
	}
	values := make([]float64, len(b)/8)
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return values
}

// compareExact measures Troupe's and transformers' logits and gradients by transformers' in float64.
func (m *hfModel) compareExact(t *testing.T, logits, generated []float32, grads map[string][]float64) (ours, theirs fromExact) {
	exact := m.exact(t, "exact.logits")
	ours.logits, theirs.logits = largestFrom(exact, widened(logits)), largestFrom(exact, widened(m.want(t, "logits")))
	exact = m.exact(t, "exact.generated")
	ours.cached, theirs.cached = largestFrom(exact, widened(generated)), largestFrom(exact, widened(m.want(t, "generated")))
	truth, largest := make(map[string][]float64), 0.0
	for _, name := range m.expected.Names() {
		if of, ok := strings.CutPrefix(name, "exact.grad."); ok {
			truth[of] = m.exact(t, name)
			largest = max(largest, norm(truth[of], nil))
		}
	}
	for name, w := range truth {
		size := max(norm(w, nil), 1e-3*largest) // as in compareGrads
		a, b := norm(w, grads[name])/size, norm(w, widened(m.want(t, "grad."+name)))/size
		ours.grads, theirs.grads = max(ours.grads, a), max(theirs.grads, b)
		ours.mean, theirs.mean = ours.mean+float64(a*a), theirs.mean+float64(b*b)
	}
	ours.mean, theirs.mean = math.Sqrt(ours.mean/float64(len(truth))), math.Sqrt(theirs.mean/float64(len(truth)))
	return ours, theirs
}

func widened(of []float32) []float64 {
	to := make([]float64, len(of))
	for i, v := range of {
		to[i] = float64(v)
	}
	return to
}

// largestFrom is the largest difference from numbers, of their largest.
func largestFrom(exact, got []float64) float64 {
	var off, size float64
	for i, w := range exact {
		off, size = max(off, math.Abs(got[i]-w)), max(size, math.Abs(w))
	}
	return off / size
}
