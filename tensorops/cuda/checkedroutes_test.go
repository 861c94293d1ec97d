//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestRoutesChecked: places, experts and offsets that cannot be fail the list that has them, and neither the one before nor the
// one after. No kernel touches what does not exist.
func TestRoutesChecked(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("routes")
	defer s.Close()
	var none tensorops.Tensor
	l := s.NewList()
	ints := func(values ...int32) tensorops.Tensor {
		x := l.Alloc(tensorops.Int32, len(values))
		l.Upload(x, tensorops.HostBytes(values))
		return x
	}
	floats := func(dims ...int) tensorops.Tensor {
		x := l.Alloc(tensorops.Float32, dims...)
		l.Fill(x, 1)
		return x
	}
	const n, k, c = 3, 2, 5
	x, rows, drows, weights, dweights := floats(n, c), floats(n*k, c), floats(n*k, c), floats(n, k), floats(n, k)
	matrices, bias, sums := floats(2, c, c), floats(2, c), floats(2, c)
	places, offsets := ints(5, 0, 1, 2, 3, 4).View(n, k), ints(0, 4, 6)
	beyond, negative := ints(5, 0, 1, 2, 3, 6).View(n, k), ints(5, 0, -2, 2, 3, 4).View(n, k)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	good := func(l *tensorops.List) {
		l.Dispatch(rows, x, places)
		l.GroupedMatMul(drows, rows, matrices, offsets, tensorops.GroupedOpts{})
	}
	for name, record := range map[string]func(l *tensorops.List, bad tensorops.Tensor){
		"dispatch":    func(l *tensorops.List, bad tensorops.Tensor) { l.Dispatch(rows, x, bad) },
		"combine":     func(l *tensorops.List, bad tensorops.Tensor) { l.Combine(x, rows, bad, weights) },
		"weigh_rows":  func(l *tensorops.List, bad tensorops.Tensor) { l.WeighRows(rows, drows, dweights, weights, bad) },
		"weigh_bias":  func(l *tensorops.List, bad tensorops.Tensor) { l.WeighBias(dweights, x, bias, bad) },
		"route_stats": func(l *tensorops.List, bad tensorops.Tensor) { recordStats(l, bad) },
		"grouped_col_sum": func(l *tensorops.List, bad tensorops.Tensor) {
			l.GroupedColSum(sums, rows, offsets, weights, bad)
		},
	} {
		for _, bad := range []tensorops.Tensor{beyond, negative} {
			mustFail(t, s, name, good, func(l *tensorops.List) { record(l, bad) })
		}
	}
	for _, at := range [][]int32{{0, 7, 6}, {0, 2, 5}, {1, 2, 6}, {0, 2, 7}, {0, -1, 6}} {
		l := s.NewList()
		bad := l.Alloc(tensorops.Int32, 3)
		l.Upload(bad, tensorops.HostBytes(at))
		if err := tensorops.Run(s, l); err != nil {
			t.Fatal(err)
		}
		for name, record := range map[string]func(l *tensorops.List){
			"grouped_matmul":      func(l *tensorops.List) { l.GroupedMatMul(drows, rows, matrices, bad, tensorops.GroupedOpts{}) },
			"grouped_weight_grad": func(l *tensorops.List) { l.GroupedWeightGrad(matrices, drows, rows, bad, false) },
			"grouped_col_sum":     func(l *tensorops.List) { l.GroupedColSum(sums, rows, bad, none, none) },
		} {
			mustFail(t, s, name, good, record)
		}
	}
}

// recordStats records statistics of experts for each of three rows, as runs of their own.
func recordStats(l *tensorops.List, experts tensorops.Tensor) {
	scores, stats := l.Alloc(tensorops.Float32, 3, 6), l.Alloc(tensorops.Float64, tensorops.RouteCounts+6)
	l.Fill(scores, 1./6)
	l.Fill(stats, 0)
	offsets := l.Alloc(tensorops.Int32, 7)
	l.Fill(offsets, 0)
	l.RouteStats(stats, scores, experts, offsets, tensorops.Tensor{}, tensorops.RouteOpts{Sequences: 3})
	for _, t := range []tensorops.Tensor{scores, stats, offsets} {
		l.Free(t)
	}
}

// mustFail runs a good list, a bad one and a good one, submitted together.
func mustFail(t *testing.T, s tensorops.Stream, name string, good, bad func(l *tensorops.List)) {
	t.Helper()
	var errs [3]chan error
	for i, record := range []func(*tensorops.List){good, bad, good} {
		l := s.NewList()
		record(l)
		done := make(chan error, 1)
		errs[i] = done
		s.Submit(l, func(err error) { done <- err })
	}
	before, err, after := <-errs[0], <-errs[1], <-errs[2]
	if before != nil || after != nil {
		t.Errorf("%s: the lists around it: %v, %v", name, before, after)
	}
	if !errors.Is(err, tensorops.ErrRoute) || !strings.Contains(err.Error(), name) {
		t.Errorf("%s: %v", name, err)
	}
}

// TestRouterNaN: logits that are no numbers choose experts that exist.
func TestRouterNaN(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("nan")
	defer s.Close()
	l := s.NewList()
	logits, weights := l.Alloc(tensorops.Float32, 70, 5), l.Alloc(tensorops.Float32, 70, 2)
	l.Fill(logits, math.NaN())
	experts, places, offsets := l.Alloc(tensorops.Int32, 70, 2), l.Alloc(tensorops.Int32, 70, 2), l.Alloc(tensorops.Int32, 6)
	l.Route(logits, weights, experts, places, offsets, logits, tensorops.Tensor{}, tensorops.RouteOpts{Renormalize: true})
	chosen, at := make([]int32, 140), make([]int32, 6)
	l.Fetch(tensorops.HostBytes(chosen), experts)
	l.Fetch(tensorops.HostBytes(at), offsets)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	for i, e := range chosen {
		if int(e) != i%2 {
			t.Fatalf("row %d has expert %d", i/2, e)
		}
	}
	if at[1] != 70 || at[2] != 140 || at[5] != 140 {
		t.Errorf("offsets %d", at)
	}
}
