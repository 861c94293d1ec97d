//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestGraphs: a segment that comes again is launched as a graph, and computes what it does
// kernel by kernel: with the step's dropout, and with the inputs that are there by then.
func TestGraphs(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	const steps, n = 5, 40
	run := func(s tensorops.Stream, step uint64) []float32 {
		list := s.NewList()
		x, y := list.Alloc(tensorops.Float32, n), list.Alloc(tensorops.Float32, n)
		list.Upload(x, tensorops.HostBytes(slices.Repeat([]float32{float32(step)}, n)))
		for i := range uint64(3) {
			list.Dropout(y, x, x, tensorops.Mask{Key: rng.NewKey(7, i), Step: step, First: step * n, P: 0.5})
			list.GELU(x, y)
		}
		got := make([]float32, n)
		list.Fetch(tensorops.HostBytes(got), x)
		list.Free(x)
		list.Free(y)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		return got
	}
	settle := func(s tensorops.Stream) { // from here on the same memory is taken
		list := s.NewList()
		x, y := list.Alloc(tensorops.Float32, n), list.Alloc(tensorops.Float32, n)
		list.Free(x)
		list.Free(y)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
	}
	eager := d.NewStream("eager")
	eager.(*stream).exec.graphs.off = true
	kept := d.NewStream("kept")
	settle(kept)
	launched, made := l.Calls("cuGraphLaunch"), l.Calls("cuGraphInstantiateWithFlags")
	for step := range uint64(steps) {
		want, got := run(eager, step), run(kept, step)
		if !slices.Equal(want, got) {
			t.Errorf("step %d: %v, kernel by kernel %v", step, got, want)
		}
	}
	if made, launched := l.Calls("cuGraphInstantiateWithFlags")-made, l.Calls("cuGraphLaunch")-launched; made != 1 || launched != steps-1 {
		t.Errorf("%d graphs were made and %d launched, want 1 and %d", made, launched, steps-1)
	}
}

// TestFailedGraph: a graph that the driver does not launch fails its list, also as the last
// of it.
func TestFailedGraph(t *testing.T) {
	l, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("failed")
	for round := range 4 {
		list := s.NewList()
		x := list.Alloc(tensorops.Float32, 1)
		for range minGraphOps {
			list.Fill(x, 1)
		}
		list.Free(x)
		if round == 3 {
			l.Fail("cuGraphLaunch", 1, 700)
		}
		err := tensorops.Run(s, list)
		if round < 3 && err != nil || round == 3 && (err == nil || !strings.Contains(err.Error(), "fill") ||
			!strings.Contains(err.Error(), "an earlier launch")) {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// TestFailedCapture: a segment whose capture fails is launched kernel by kernel, is captured when
// it comes again, and takes no other segment's graph away. It is counted and said.
func TestFailedCapture(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	var said []string
	var mu sync.Mutex
	d.OnWarning(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	})
	s := d.NewStream("capture")
	fill := func(value int) {
		t.Helper()
		list := s.NewList()
		x := list.Alloc(tensorops.Float32, 3)
		for range minGraphOps {
			list.Fill(x, float64(value))
		}
		got := make([]float32, 3)
		list.Fetch(tensorops.HostBytes(got), x)
		list.Free(x)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		if want := float32(value); !slices.Equal(got, []float32{want, want, want}) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	const refusedOne = 900
	for _, call := range []string{"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"} {
		before := d.Work()
		value := 10 + len(said)
		fill(1) // has a graph from its second time on
		fill(1)
		fill(value)
		l.Fail(call, 1, refusedOne)
		fill(value) // is captured in vain
		launched := l.Calls("cuGraphLaunch")
		fill(1)
		if l.Calls("cuGraphLaunch") != launched+1 {
			t.Errorf("%s: another segment has lost its graph", call)
		}
		fill(value) // is captured
		if l.Calls("cuGraphLaunch") != launched+2 {
			t.Errorf("%s: the segment is not tried again", call)
		}
		is := d.Work()
		if is.FailedGraphs != before.FailedGraphs+1 || is.Graphs <= before.Graphs || !strings.Contains(is.GraphError, call) ||
			!strings.Contains(is.GraphError, "fill") {
			t.Errorf("%s: %+v, before %+v", call, is, before)
		}
	}
	if len(said) != 3 || !strings.Contains(said[0], "kernel by kernel") ||
		!strings.Contains(said[0], "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED") {
		t.Errorf("said %q", said)
	}

	// One segment is not tried for ever.
	captures := l.Calls("cuStreamBeginCapture_v2")
	fill(99)
	for range limitCaptures + 2 {
		l.Fail("cuStreamBeginCapture_v2", 1, refusedOne)
		fill(99)
	}
	if n := l.Calls("cuStreamBeginCapture_v2") - captures; n != limitCaptures {
		t.Errorf("a segment was captured %d times, the limit is %d", n, limitCaptures)
	}
	// A driver that never can is not asked for ever, and that is said.
	for value := 1000; !s.(*stream).exec.graphs.off; value++ {
		if value == 1000+limitFailedGraphs {
			t.Fatal("graphs are made for ever")
		}
		fill(value)
		l.Fail("cuStreamBeginCapture_v2", 1, refusedOne)
		fill(value)
	}
	l.Fail("cuStreamBeginCapture_v2", 1<<30, refusedOne)
	if is := d.Work(); is.FailedGraphs != 3+limitFailedGraphs {
		t.Errorf("%d captures failed, want %d", is.FailedGraphs, 3+limitFailedGraphs)
	}
	if len(said) > limitWarnings {
		t.Errorf("%d warnings, the limit is %d", len(said), limitWarnings)
	}
}

// TestManyGraphs: a stream keeps limitGraphs, and one that is not used for long makes room.
func TestManyGraphs(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	s := d.NewStream("many")
	fill := func(value int) {
		list := s.NewList()
		x := list.Alloc(tensorops.Float32, 1)
		for range minGraphOps {
			list.Fill(x, float64(value))
		}
		list.Free(x)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
	}
	kept := s.(*stream).exec.graphs.kept
	for value := range limitGraphs + 1 {
		fill(value)
		fill(value)
	}
	if len(kept) != limitGraphs {
		t.Errorf("%d graphs are kept, the limit is %d", len(kept), limitGraphs)
	}
	ended := l.Calls("cuGraphExecDestroy")
	for range 4 * limitGraphs {
		fill(1)
	}
	fill(limitGraphs)
	if ended := l.Calls("cuGraphExecDestroy") - ended; ended != 1 || len(kept) != limitGraphs {
		t.Errorf("%d graphs were ended and %d are kept, want 1 and %d", ended, len(kept), limitGraphs)
	}
}

// TestKey: operations that differ in anything their launches depend on have keys of their
// own; the counters of a mask are no such thing.
func TestKey(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("key")
	list := s.NewList()
	x, y := list.Alloc(tensorops.Float32, 4, 6), list.Alloc(tensorops.Float32, 4, 6)
	mask := tensorops.Mask{Key: rng.NewKey(1, 2), P: 0.5}
	other := tensorops.Mask{Key: rng.NewKey(1, 3), P: 0.5}
	likelier := tensorops.Mask{Key: rng.NewKey(1, 2), P: 0.25}
	list.Dropout(y, x, tensorops.Tensor{}, mask)
	list.Dropout(x, y, tensorops.Tensor{}, mask)
	list.Dropout(y, x, y, mask)
	list.Dropout(y, x, tensorops.Tensor{}, other)
	list.Dropout(y, x, tensorops.Tensor{}, likelier)
	list.Copy(y.Columns(0, 3), x.Columns(0, 3))
	list.Copy(y.Columns(0, 3), x.Columns(3, 6))
	list.Copy(y.Columns(0, 2), x.Columns(0, 2))
	list.MatMul(y, x.View(4, 6), y.View(6, 4), tensorops.MatMulOpts{}) // refused: no kernel
	if list.Err() == nil {
		t.Fatal("the shapes fit")
	}
	keys := make(map[string]string)
	for i := range list.Ops() {
		o := &list.Ops()[i]
		if o.Kind == tensorops.KindMatMul {
			continue
		}
		key := string(appendKey(nil, o))
		if twin, ok := keys[key]; ok {
			t.Errorf("%v has the key of %s", o, twin)
		}
		keys[key] = o.String()
		o.U = [2]uint64{3, 4}
		if string(appendKey(nil, o)) != key {
			t.Errorf("%v: the counters are in the key", o)
		}
	}
	if len(keys) != 8 {
		t.Errorf("%d keys", len(keys))
	}
	list.Free(x)
	list.Free(y)
	_ = tensorops.Run(s, list)
}

// TestManyMasks: a segment with more masks than there is room for is cut.
func TestManyMasks(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("masks")
	const n = 8
	mask := func(i int) tensorops.Mask {
		return tensorops.Mask{Key: rng.NewKey(5, 5), Step: uint64(i), P: 0.01}
	}
	run := func(lists, of int) []float32 {
		list := s.NewList()
		x := list.Alloc(tensorops.Float32, n)
		list.Fill(x, 1)
		for i := range lists {
			for j := range of {
				list.Dropout(x, x, tensorops.Tensor{}, mask(i*of+j))
			}
			if i < lists-1 {
				if err := tensorops.Run(s, list); err != nil {
					t.Fatal(err)
				}
				list = s.NewList()
			}
		}
		got := make([]float32, n)
		list.Fetch(tensorops.HostBytes(got), x)
		list.Free(x)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if want, got := run(11, 100), run(1, 1100); !slices.Equal(want, got) {
		t.Errorf("1100 masks in one list: %v, in eleven %v", got, want)
	}
}

// TestJoined: updates and norms that follow each other are one launch, but not where one
// depends on another.
func TestJoined(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	s := d.NewStream("joined")
	const count = 9
	sizes := [count]int{1, ofBlock, 0, 3, ofBlock + 1, 4*ofBlock - 2, 7, 0, 64}
	opts := func(i int) tensorops.AdamWOpts {
		return tensorops.AdamWOpts{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: float64(i%2) / 10, GradScale: 1, Step: 3,
			ClearGrad: true}
	}
	var of [count][4]tensorops.Tensor
	list := s.NewList()
	for i, n := range sizes {
		for part := range of[i] {
			of[i][part] = list.Alloc(tensorops.Float32, n)
		}
	}
	norms := list.Alloc(tensorops.Float64, count)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	// What n elements that are all alike become, with a rate of 0.1 and a gradient of i+1.
	step := func(joined bool, twice int) (weights [count][]float32, squared []float64, launches int64) {
		squared = make([]float64, count)
		list := s.NewList()
		next := func() {
			if !joined {
				if err := tensorops.Run(s, list); err != nil {
					t.Fatal(err)
				}
				list = s.NewList()
			}
		}
		for i := range of {
			for part, value := range []float64{1, 0.5, 0.25, float64(i + 1)} {
				list.Fill(of[i][part], value)
			}
		}
		next()
		before := l.Calls("cuLaunchKernel")
		for i := range of {
			list.SquaredNorm(norms.Columns(i, i+1).View(1), of[i][3])
			next()
		}
		for range twice {
			for i := range of {
				list.AdamW(of[i][0], of[i][1], of[i][2], of[i][3], opts(i))
				next()
			}
		}
		for i, n := range sizes {
			weights[i] = make([]float32, n)
			list.Fetch(tensorops.HostBytes(weights[i]), of[i][0])
		}
		list.Fetch(tensorops.HostBytes(squared), norms)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		return weights, squared, l.Calls("cuLaunchKernel") - before
	}
	for twice := 1; twice <= 2; twice++ {
		weights, squared, _ := step(false, twice)
		got, gotSquared, launches := step(true, twice)
		if !slices.Equal(squared, gotSquared) {
			t.Errorf("squared norms %v, one by one %v", gotSquared, squared)
		}
		for i, n := range sizes {
			if want := float64(n) * float64((i+1)*(i+1)); squared[i] != want {
				t.Errorf("%d elements of %d: squared norm %v, want %v", n, i+1, squared[i], want)
			}
			if !slices.Equal(got[i], weights[i]) {
				t.Errorf("%d updates of tensor %d, %d elements: they differ from those one by one", twice, i, n)
			}
		}
		fills := int64(0)
		for _, n := range sizes {
			if n > 0 {
				fills += 4
			}
		}
		// The fills are launched when the list is.
		if want := fills + 2 + int64(twice); launches != want {
			t.Errorf("%d launches, want %d", launches, want)
		}
	}
	list = s.NewList()
	for _, tensors := range of {
		for _, x := range tensors {
			list.Free(x)
		}
	}
	list.Free(norms)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
}

// TestUpdatesThatAreNot: numbers that are none, and tensors that share memory, are no reason
// to hang.
func TestUpdatesThatAreNot(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("updates")
	for _, rate := range []float64{0.1, math.NaN()} {
		list := s.NewList()
		x := list.Alloc(tensorops.Float32, 8)
		list.Fill(x, 1)
		for range 3 {
			list.AdamW(x, x, x, x, tensorops.AdamWOpts{LR: rate, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, GradScale: 1, Step: 1})
		}
		list.Free(x)
		if err := tensorops.Run(s, list); err != nil {
			t.Error(err)
		}
	}
}

func TestExtents(t *testing.T) {
	arena := tensorops.NewHostMemory(0).NewArena("extents")
	whole, err := tensorops.NewTensor(arena, tensorops.Float32, 100)
	if err != nil {
		t.Fatal(err)
	}
	whole.Buffer().Addr = 1 << 20 // as a device's would be
	defer whole.Release()
	part := func(first, last int) tensorops.Tensor { return whole.Columns(first, last) }
	var r extents
	for _, test := range []struct {
		first, last int
		apart       bool
	}{{40, 50, true}, {50, 60, true}, {30, 40, true}, {0, 10, true}, {20, 20, true}, {10, 30, true}, {59, 60, false}} {
		if got := r.add(part(test.first, test.last)); got != test.apart {
			t.Errorf("%d to %d beside %v: %v", test.first, test.last, r, got)
		}
	}
	for _, overlap := range [][2]int{{35, 45}, {45, 46}, {0, 100}, {9, 10}} {
		r := extents{}
		if !r.add(part(40, 50), part(0, 10)) || r.add(part(overlap[0], overlap[1])) {
			t.Errorf("%v is said to be apart from 0 to 10 and 40 to 50", overlap)
		}
	}
}

// TestWholePieces: what has to be in one piece of page-locked memory is, or the batch has
// to complete first.
func TestWholePieces(t *testing.T) {
	_, path := stand(t)
	d := newDevice(t, path, Options{})
	err := d.owner.call(func() error {
		s := staging{driver: d.driver}
		defer s.close()
		for used := 0; ; {
			size := 1 + used%minStagingBytes
			b, err := s.whole(size)
			if err != nil {
				if err != errNoRoom || used < limitStagingBytes/2 { //nolint:errorlint // the very error
					return fmt.Errorf("after %d bytes: %w", used, err)
				}
				break
			}
			if len(b) != size {
				return fmt.Errorf("%d bytes, want %d", len(b), size)
			}
			used += size
		}
		if _, err := s.whole(minStagingBytes + 1); err == nil || err == errNoRoom { //nolint:errorlint // any other
			return fmt.Errorf("a piece that no block need have: %w", err)
		}
		s.reset()
		_, err := s.whole(minStagingBytes)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
