package cpu_test

import (
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// BenchmarkGrouped times a product of the rows of experts, and one dense product of as many operations, in turns.
func BenchmarkGrouped(b *testing.B) {
	const rows, n, k = 4096, 512, 512
	for _, experts := range []int{8, 32, 128} {
		for _, skewed := range []bool{false, true} {
			for _, half := range []bool{false, true} {
				b.Run(fmt.Sprintf("experts=%d/skewed=%v/bf16=%v", experts, skewed, half), func(b *testing.B) {
					benchmarkGrouped(b, loads(rows, experts, skewed), rows, n, k, half)
				})
			}
		}
	}
}

// loads are the offsets of experts with equal loads, or with half of the rows in the first one, a quarter in the second, and so on.
func loads(rows, experts int, skewed bool) []int32 {
	offsets := []int32{0}
	left := rows
	for e := range experts {
		n := left / (experts - e)
		if skewed && e < experts-1 {
			n = left / 2
		}
		left -= n
		offsets = append(offsets, int32(rows-left))
	}
	return offsets
}

func benchmarkGrouped(b *testing.B, offsets []int32, rows, n, k int, half bool) {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	s := dev.NewStream("grouped")
	defer s.Close()
	l := s.NewList()
	inner := tensorops.Float32
	if half {
		inner = tensorops.BFloat16
	}
	experts := len(offsets) - 1
	at, a, c := l.Alloc(tensorops.Int32, len(offsets)), l.Alloc(inner, rows, k), l.Alloc(inner, rows, n)
	w, one := l.Alloc(tensorops.Float32, experts, n, k), l.Alloc(tensorops.Float32, n, k)
	l.Upload(at, tensorops.HostBytes(offsets))
	for _, t := range []tensorops.Tensor{a, w, one} {
		l.Fill(t, 0.5)
	}
	run := func(record func(l *tensorops.List)) {
		l := s.NewList()
		record(l)
		if err := tensorops.Run(s, l); err != nil {
			b.Fatal(err)
		}
	}
	if err := tensorops.Run(s, l); err != nil {
		b.Fatal(err)
	}
	b.Run("grouped", func(b *testing.B) {
		for b.Loop() {
			run(func(l *tensorops.List) {
				l.GroupedMatMul(c, a, w, at, tensorops.GroupedOpts{TransB: true, BF16: half})
			})
		}
	})
	b.Run("dense", func(b *testing.B) {
		for b.Loop() {
			run(func(l *tensorops.List) { l.MatMul(c, a, one, tensorops.MatMulOpts{TransB: true, BF16: half}) })
		}
	})
}
