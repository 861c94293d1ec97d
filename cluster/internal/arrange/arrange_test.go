package arrange

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
)

// machines makes workers from a text such as "a:4c8g a:4c b:2c": host, cores, and GiB, which may be left out.
func machines(t testing.TB, text string) (workers []Capacity, hosts []string) {
	t.Helper()
	for i, w := range strings.Fields(text) {
		host, has, _ := strings.Cut(w, ":")
		var c Capacity
		var gib int64
		if n, err := fmt.Sscanf(has, "%dc%dg", &c.Cores, &gib); n == 0 {
			t.Fatalf("%s: %v", w, err)
		}
		c.Name, c.MemoryBytes = fmt.Sprint(host, i), gib<<30
		workers, hosts = append(workers, c), append(hosts, host)
	}
	return workers, hosts
}

// evenly returns n equal values.
func evenly[T any](n int, v T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// TestArrange: in every order, each tensor group stays on one host if there is room; then neighbors in a pipeline do.
func TestArrange(t *testing.T) {
	tp2pp2dp2 := grid.Sizes{Tensor: []int{2}, Pipeline: 2, Data: 2}
	for _, c := range []struct {
		name    string
		sizes   grid.Sizes
		order   string
		workers string
		want    [][]int
		apart   string // what is said
	}{
		{"two hosts", tp2pp2dp2, "", "a:4c b:4c", [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}, ""},
		{"replicas first", tp2pp2dp2, "dp-pp-tp", "a:4c b:4c", [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}}, ""},
		{"stages first", tp2pp2dp2, "pp-tp-dp", "a:2c b:2c c:2c d:2c", [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}, ""},
		{"a worker for each rank", tp2pp2dp2, "dp-pp-tp", "a:1c a:1c a:1c a:1c b:1c b:1c b:1c b:1c",
			[][]int{{0}, {4}, {2}, {6}, {1}, {5}, {3}, {7}}, ""},
		{"a small host gets none", grid.Sizes{Tensor: []int{2}, Pipeline: 2}, "", "a:2c b:1c c:2c", [][]int{{0, 1}, nil, {2, 3}}, ""},
		{"a large one gets more", grid.Sizes{Tensor: []int{2}, Pipeline: 3}, "", "a:2c b:4c", [][]int{{0, 1}, {2, 3, 4, 5}}, ""},
		{"memory", grid.Sizes{Tensor: []int{2}, Pipeline: 3}, "", "a:8c4g b:2c2g", [][]int{{0, 1, 2, 3}, {4, 5}}, ""},
		{"of several workers", grid.Sizes{Tensor: []int{2}, Pipeline: 2}, "", "a:1c1g a:1c1g b:2c2g", [][]int{{0}, {1}, {2, 3}}, ""},
		{"sizes of each stage", grid.Sizes{Tensor: []int{1, 2, 4}, Pipeline: 3}, "", "a:4c b:4c", [][]int{{0, 1, 2}, {3, 4, 5, 6}}, ""},
		{"a pipeline on each host", grid.Sizes{Pipeline: 2, Data: 2}, "dp-pp", "a:2c b:2c", [][]int{{0, 2}, {1, 3}}, ""},
		{"no host has the cores", grid.Sizes{Tensor: []int{4}}, "", "a:2c b:2c", [][]int{{0, 1}, {2, 3}},
			"1 of 1 tensor groups are on more than one host, so every layer waits for the network (ranks 0, 1, 2, 3 are on a and b; together they need 4.0 GiB and 4 cores)"},
		{"no host has the memory", grid.Sizes{Tensor: []int{2}, Pipeline: 2}, "", "a:8c1g b:8c2g c:8c1g", [][]int{{0}, {1, 2}, {3}},
			"2 of 2 tensor groups are on more than one host"},
		{"no room", grid.Sizes{Tensor: []int{2}}, "", "a:8c1g", nil, ""},
	} {
		c.sizes.Order = c.order
		g, err := grid.New(c.sizes)
		if err != nil {
			t.Fatal(err)
		}
		workers, hosts := machines(t, c.workers)
		parts, apart, err := Ranks(g, evenly(g.World(), int64(1<<30)), evenly(g.World(), 1.0), workers, hosts)
		if c.want == nil {
			if !errors.Is(err, plan.ErrNoRoom) {
				t.Errorf("%s: %v, %v", c.name, parts, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(parts, c.want) || (apart == "") != (c.apart == "") || !strings.Contains(apart, c.apart) {
			t.Errorf("%s: %v, %q, %v; want %v, %q", c.name, parts, apart, err, c.want, c.apart)
		}
	}
}

// TestArrangeKeepsGroups: each rank gets one worker. If every host has room for all, no order splits a tensor group. If a
// group is split, the result says so.
func TestArrangeKeepsGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := grid.Sizes{Tensor: []int{rapid.IntRange(1, 4).Draw(t, "tp")}, Context: rapid.IntRange(1, 2).Draw(t, "cp"),
			Pipeline: rapid.IntRange(1, 3).Draw(t, "pp"), Data: rapid.IntRange(1, 3).Draw(t, "dp"),
			Order: strings.Join(rapid.Permutation([]string{"tp", "cp", "pp", "dp"}).Draw(t, "order"), "-")}
		g, err := grid.New(s)
		if err != nil {
			t.Fatal(err)
		}
		roomy := rapid.Bool().Draw(t, "roomy")
		var workers []Capacity
		var hosts []string
		for h := range rapid.IntRange(1, 4).Draw(t, "hosts") {
			for range rapid.IntRange(1, 3).Draw(t, "workers") {
				c := Capacity{Cores: rapid.IntRange(1, 4).Draw(t, "cores"), MemoryBytes: rapid.Int64Range(1, 12).Draw(t, "memory")}
				if roomy {
					c = Capacity{Cores: 4}
				}
				workers, hosts = append(workers, c), append(hosts, fmt.Sprint(h))
			}
		}
		n := min(len(workers), g.World())
		workers, hosts = workers[:n], hosts[:n]
		parts, apart, err := Ranks(g, evenly(g.World(), int64(1)), evenly(g.World(), 1.0), workers, hosts)
		if err != nil {
			if roomy || !errors.Is(err, plan.ErrNoRoom) {
				t.Fatal(err)
			}
			return
		}
		on := make(map[int]string)
		for i, part := range parts {
			if workers[i].MemoryBytes > 0 && int64(len(part)) > workers[i].MemoryBytes || !slices.IsSorted(part) {
				t.Fatalf("worker %d has ranks %v, and room for %d", i, part, workers[i].MemoryBytes)
			}
			for _, r := range part {
				if _, twice := on[r]; twice {
					t.Fatalf("rank %d has two workers: %v", r, parts)
				}
				on[r] = hosts[i]
			}
		}
		if len(on) != g.World() {
			t.Fatalf("%d of %d ranks have workers", len(on), g.World())
		}
		cut := false
		for _, group := range g.Groups(grid.Tensor) {
			for _, r := range group {
				cut = cut || on[r] != on[group[0]]
			}
		}
		if cut && roomy || cut != (apart != "") {
			t.Fatalf("%v, cut: %v, said: %q", parts, cut, apart)
		}
	})
}
