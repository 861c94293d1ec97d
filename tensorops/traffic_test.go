package tensorops_test

import (
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

func TestTraffic(t *testing.T) {
	l := newList()
	x, part := l.Alloc(tensorops.Float32, 8, 3), l.Alloc(tensorops.Float32, 2, 3)
	four, solo := tensorops.DryGroup{Place: 1, Members: 4}, tensorops.Solo{}
	var want tensorops.Traffic
	for _, c := range []struct {
		record func()
		bytes  int64
	}{
		{func() { l.AllReduce(x, tensorops.Sum, four) }, 2 * 96 * 3 / 4},
		{func() { l.ReduceScatter(part, x, 0, tensorops.Sum, four) }, 96 * 3 / 4},
		{func() { l.AllGather(x, part, 0, four) }, 24 * 3},
		{func() { l.RingForward(part, part, four) }, 24},
		{func() { l.Barrier(four) }, 0},
	} {
		c.record()
		want.Collectives++
		want.Bytes += c.bytes
		if got := l.Traffic(); l.Err() != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, l.Err(), want)
		}
	}
	l.AllReduce(x, tensorops.Sum, solo)
	if got := l.Traffic(); got != want {
		t.Errorf("a group of one: %+v, want %+v", got, want)
	}
}
