package arrange

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/plan"
)

func TestSplit(t *testing.T) {
	const gib = 1 << 30
	even := []float64{1, 1, 1, 1}
	for _, c := range []struct {
		name    string
		bytes   []int64
		work    []float64
		workers []Capacity
		want    [][]int
	}{
		{"alike", []int64{1, 1, 1, 1}, even, []Capacity{{"a", 0, 2}, {"b", 0, 2}}, [][]int{{0, 1}, {2, 3}}},
		{"a faster one", []int64{1, 1, 1, 1}, even, []Capacity{{"a", 0, 1}, {"b", 0, 3}}, [][]int{{0}, {1, 2, 3}}},
		{"memory comes first", []int64{gib, gib, gib, gib}, even, []Capacity{{"a", 3 * gib, 1}, {"b", gib, 8}}, [][]int{{0, 1, 2}, {3}}},
		{"uneven work", []int64{1, 1, 1, 1}, []float64{3, 1, 1, 1}, []Capacity{{"a", 0, 1}, {"b", 0, 1}}, [][]int{{0}, {1, 2, 3}}},
		{"as many as ranks", []int64{1, 1}, []float64{1, 9}, []Capacity{{"a", 0, 1}, {"b", 0, 9}}, [][]int{{0}, {1}}},
		{"no room", []int64{gib, 2 * gib}, []float64{1, 1}, []Capacity{{"a", 2 * gib, 1}, {"b", gib, 1}}, nil},
	} {
		got, _, err := split(c.bytes, c.work, c.workers)
		if c.want == nil {
			if !errors.Is(err, plan.ErrNoRoom) {
				t.Errorf("%s: %v, %v", c.name, got, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestSplitIsLeast: no other division fits and is faster.
func TestSplitIsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ranks")
		w := rapid.IntRange(1, n).Draw(t, "workers")
		bytes := rapid.SliceOfN(rapid.Int64Range(1, 5), n, n).Draw(t, "bytes")
		work := make([]float64, n)
		for i := range work {
			work[i] = float64(rapid.IntRange(1, 5).Draw(t, "work"))
		}
		workers := make([]Capacity, w)
		for i := range workers {
			workers[i] = Capacity{"w", rapid.Int64Range(0, 12).Draw(t, "memory"), rapid.IntRange(1, 3).Draw(t, "cores")}
		}
		cost := func(parts [][]int) (slowest float64, fits bool) {
			for i, part := range parts {
				var held int64
				var load float64
				for _, r := range part {
					held, load = held+bytes[r], load+work[r]
				}
				if len(part) == 0 || workers[i].MemoryBytes > 0 && held > workers[i].MemoryBytes {
					return 0, false
				}
				slowest = max(slowest, load/float64(workers[i].Cores))
			}
			return slowest, true
		}
		best, possible := 0.0, false
		var cut func(from int, parts [][]int)
		cut = func(from int, parts [][]int) {
			if len(parts) == w {
				if c, fits := cost(parts); from == n && fits && (!possible || c < best) {
					best, possible = c, true
				}
				return
			}
			var part []int
			for r := from; r < n; r++ {
				part = append(part, r)
				cut(r+1, append(slices.Clone(parts), slices.Clone(part)))
			}
		}
		cut(0, nil)
		parts, slowest, err := split(bytes, work, workers)
		if (err == nil) != possible {
			t.Fatalf("%v, %v; possible: %v", parts, err, possible)
		}
		if err == nil {
			if c, fits := cost(parts); !fits || c != best || slowest != best {
				t.Fatalf("%v takes %g, said to be %g, the least is %g", parts, c, slowest, best)
			}
		}
	})
}
