package cpu

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// narrowRun is a parameter of n elements, the state of which is not float32.
type narrowRun struct {
	n           int
	dtype       tensorops.DType // of the state
	sgd, copies bool
	clear       bool
	first       uint64
}

// parts are the names of the state's tensors.
func (r narrowRun) parts() []string {
	if r.sgd {
		return []string{"momentum"}
	}
	return []string{"m", "v"}
}

// narrowTensors are the tensors of a run.
type narrowTensors struct {
	w, g, low              tensorops.Tensor
	state, scales, widened [2]tensorops.Tensor
}

func (r narrowRun) alloc(l *tensorops.List) (p narrowTensors) {
	p.w, p.g = l.Alloc(tensorops.Float32, r.n), l.Alloc(tensorops.Float32, r.n)
	if r.copies {
		p.low = l.Alloc(tensorops.BFloat16, r.n)
		l.Fill(p.low, 0)
	}
	for i := range r.parts() {
		p.widened[i], p.state[i] = l.Alloc(tensorops.Float32, r.n), l.Alloc(r.dtype, r.n)
		l.Fill(p.state[i], 0)
		if r.dtype == tensorops.Uint8 {
			p.scales[i] = l.Alloc(tensorops.Float32, tensorops.StateScales(r.n))
			l.Fill(p.scales[i], 0)
		}
	}
	return p
}

// record records an update; l returns the list of each operation.
func (r narrowRun) record(l func() *tensorops.List, p *narrowTensors, step int) {
	parts := r.parts()
	for i, part := range parts {
		l().WidenState(p.widened[i], p.state[i], p.scales[i], part == "v")
	}
	if r.sgd {
		l().SGD(p.w, p.widened[0], p.g, tensorops.SGDOpts{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01, GradScale: 0.5, Copy: p.low})
		if r.clear {
			l().Fill(p.g, 0)
		}
	} else {
		l().AdamW(p.w, p.widened[0], p.widened[1], p.g, tensorops.AdamWOpts{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1,
			GradScale: 0.5, Step: step, ClearGrad: r.clear, Copy: p.low})
	}
	for i, part := range parts {
		l().NarrowState(p.state[i], p.scales[i], p.widened[i], tensorops.NarrowStateOpts{Root: part == "v", Key: rng.NewKey(3, uint64(i)),
			Update: uint64(step), First: r.first})
	}
}

// run returns the bytes of all tensors but the widened ones after three updates.
func (r narrowRun) run(t *testing.T, path string, threads int, apart bool) (all [][]byte) {
	t.Helper()
	dev, err := New(Options{Threads: threads, Kernels: path})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	s := dev.NewStream("narrow")
	defer s.Close()
	host := make([]float32, r.n)
	run := func(l *tensorops.List) {
		t.Helper()
		if err := tensorops.Run(s, l); err != nil {
			t.Fatal(err)
		}
	}
	l := s.NewList()
	p := r.alloc(l)
	rng.Normal(host, rng.NewKey(1, 1), 0, 0, 1)
	l.Upload(p.w, tensorops.HostBytes(host))
	run(l)
	for step := 1; step <= 3; step++ {
		l = s.NewList()
		rng.Normal(host, rng.NewKey(1, uint64(1+step)), 0, 0, 1e-3)
		l.Upload(p.g, tensorops.HostBytes(host))
		if !apart {
			before := len(l.Ops())
			r.record(func() *tensorops.List { return l }, &p, step)
			if u, found := narrowUpdateOf(l.Ops()[before:]); !found || u.count() != len(l.Ops())-before {
				t.Fatal("the update is carried out operation by operation")
			}
			run(l)
			continue
		}
		r.record(func() *tensorops.List { run(l); l = s.NewList(); return l }, &p, step)
		run(l)
	}
	l = s.NewList()
	for _, x := range []tensorops.Tensor{p.w, p.g, p.low, p.state[0], p.state[1], p.scales[0], p.scales[1]} {
		if x.Valid() {
			all = append(all, make([]byte, x.Len()*x.DType().Size()))
			l.Fetch(all[len(all)-1], x)
		}
	}
	run(l)
	return all
}

// TestNarrowUpdate: an update of a state that is not float32 has the bits that its operations have one by one, on every path.
func TestNarrowUpdate(t *testing.T) {
	for _, path := range Paths() {
		for _, dtype := range []tensorops.DType{tensorops.BFloat16, tensorops.Uint8} {
			for i, n := range []int{1, 31, 256, 257, 1500, 70_001} {
				r := narrowRun{n: n, dtype: dtype, sgd: i%3 == 1, copies: i%2 == 1, clear: i%3 > 0, first: uint64(i * 12345)}
				t.Run(fmt.Sprintf("%s/%v/%d", path, dtype, n), func(t *testing.T) {
					apart := r.run(t, path, 1, true)
					for _, threads := range []int{1, 2} {
						for j, got := range r.run(t, path, threads, false) {
							if !bytes.Equal(got, apart[j]) {
								t.Errorf("%d threads, tensor %d: other bits than with one operation after the other", threads, j)
							}
						}
					}
				})
			}
		}
	}
}

// TestNarrowUpdateReadsAgain: operations that are not such an update are carried out one by one. Here an operation between them reads
// the state in float32.
func TestNarrowUpdateReadsAgain(t *testing.T) {
	dev, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	s := dev.NewStream("narrow")
	defer s.Close()
	r := narrowRun{n: 700, dtype: tensorops.BFloat16}
	l := s.NewList()
	p := r.alloc(l)
	l.Fill(p.w, 1)
	l.Fill(p.g, 1)
	mean, host := l.Alloc(tensorops.Float32, r.n), make([]float32, r.n)
	calls := 0
	r.record(func() *tensorops.List {
		if calls++; calls == 4 { // after the update
			l.Copy(mean, p.widened[0])
		}
		return l
	}, &p, 1)
	l.Fetch(tensorops.HostBytes(host), mean)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	for i, v := range host {
		if v != 0.05 {
			t.Fatalf("the mean of element %d is %g, want 0.05", i, v)
		}
	}
}

// BenchmarkNarrowUpdate measures updates with a state of each type, with memory far above the caches.
func BenchmarkNarrowUpdate(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, dtype := range []tensorops.DType{tensorops.Float32, tensorops.BFloat16, tensorops.Uint8} {
			b.Run(fmt.Sprintf("threads=%d/%v", threads, dtype), func(b *testing.B) { benchNarrowUpdate(b, threads, dtype) })
		}
	}
}

func benchNarrowUpdate(b *testing.B, threads int, dtype tensorops.DType) {
	const n, piece = 1 << 24, 1 << 18
	dev, err := New(Options{Threads: threads})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	s := dev.NewStream("narrow")
	defer s.Close()
	pieces := make([]narrowTensors, n/piece)
	l, r := s.NewList(), narrowRun{n: piece, dtype: dtype, copies: true, clear: true}
	for i := range pieces {
		pieces[i] = r.alloc(l)
		pieces[i].widened = pieces[0].widened
		l.Fill(pieces[i].w, 1)
		l.Fill(pieces[i].g, 1e-3)
	}
	if err := tensorops.Run(s, l); err != nil {
		b.Fatal(err)
	}
	for step := 1; b.Loop(); step++ {
		l := s.NewList()
		for i := range pieces {
			if p := &pieces[i]; dtype == tensorops.Float32 {
				l.AdamW(p.w, p.state[0], p.state[1], p.g, tensorops.AdamWOpts{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8,
					WeightDecay: 0.1, GradScale: 0.5, Step: step, ClearGrad: true, Copy: p.low})
			} else {
				r.record(func() *tensorops.List { return l }, p, step)
			}
		}
		if err := tensorops.Run(s, l); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/element")
}
