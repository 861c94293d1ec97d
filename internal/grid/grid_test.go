package grid_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
)

var dims = []grid.Dimension{grid.Tensor, grid.Context, grid.Pipeline, grid.Data}

// TestGroups has the groups of a world of 8 with TP = PP = DP = 2, in the order of the
// published examples of Megatron's documents and in Megatron-Core's own.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		order      string
		tp, pp, dp [][]int
	}{
		{"tp-pp-dp", [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{"tp-dp-pp", [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
		{"", [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
	} {
		g, err := grid.New(grid.Sizes{Tensor: []int{2}, Pipeline: 2, Data: 2, Order: c.order})
		if err != nil {
			t.Fatal(err)
		}
		for d, want := range map[grid.Dimension][][]int{grid.Tensor: c.tp, grid.Pipeline: c.pp, grid.Data: c.dp} {
			if got := g.Groups(d); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v groups %v, want %v", c.order, d, got, want)
			}
		}
	}
}

// permutations calls f with every order of the names.
func permutations(names []string, f func(order []string)) {
	var place func(k int)
	place = func(k int) {
		if k == len(names) {
			f(names)
			return
		}
		for i := k; i < len(names); i++ {
			names[k], names[i] = names[i], names[k]
			place(k + 1)
			names[k], names[i] = names[i], names[k]
		}
	}
	place(0)
}

// bruteForce is the definition: the place of every rank by counting, the first named dimension fastest.
func bruteForce(order []string, size map[string]int) []map[string]int {
	places := []map[string]int{{}}
	for i := len(order) - 1; i >= 0; i-- { // the slowest first
		var next []map[string]int
		for _, p := range places {
			for k := range size[order[i]] {
				at := map[string]int{order[i]: k}
				for name, v := range p {
					at[name] = v
				}
				next = append(next, at)
			}
		}
		places = next
	}
	return places
}

// sameGrid compares a grid with the definition: places, ranks, and the groups of each set of dimensions.
func sameGrid(t rapid.TB, g *grid.Grid, places []map[string]int) {
	if g.World() != len(places) {
		t.Fatalf("%d ranks, want %d", g.World(), len(places))
	}
	for rank, want := range places {
		at := g.Coordinates(rank)
		for _, d := range dims {
			if at[d] != want[d.String()] {
				t.Fatalf("rank %d is %v %d, want %d", rank, d, at[d], want[d.String()])
			}
		}
		if g.Rank(at) != rank {
			t.Fatalf("rank %d at %v is found as %d", rank, at, g.Rank(at))
		}
	}
	for set := range 1 << len(dims) {
		var in []grid.Dimension
		for i, d := range dims {
			if set>>i&1 == 1 {
				in = append(in, d)
			}
		}
		if len(in) == 0 {
			continue
		}
		byKey, keys := make(map[string][]int), []string(nil)
		for rank, at := range places {
			key := ""
			for _, d := range dims {
				if !slices.Contains(in, d) {
					key += fmt.Sprint(d, at[d.String()], " ")
				}
			}
			if byKey[key] == nil {
				keys = append(keys, key)
			}
			byKey[key] = append(byKey[key], rank)
		}
		var want [][]int
		for _, key := range keys {
			want = append(want, byKey[key])
		}
		if got := g.Groups(in...); !reflect.DeepEqual(got, want) {
			t.Fatalf("the groups of %v are %v, want %v", in, got, want)
		}
	}
}

// TestOrders: all 24 orders of TP2·CP2·PP2·DP2.
func TestOrders(t *testing.T) {
	n := 0
	permutations([]string{"tp", "cp", "pp", "dp"}, func(order []string) {
		n++
		g, err := grid.New(grid.Sizes{Tensor: []int{2}, Context: 2, Pipeline: 2, Data: 2, Order: strings.Join(order, "-"), World: 16})
		if err != nil {
			t.Fatal(err)
		}
		sameGrid(t, g, bruteForce(order, map[string]int{"tp": 2, "cp": 2, "pp": 2, "dp": 2}))
	})
	if n != 24 {
		t.Errorf("%d orders", n)
	}
}

// TestRandomGrids compares random sizes and orders with the definition, tensor sizes that differ from
// stage to stage among them.
func TestRandomGrids(t *testing.T) {
	random := func(t *rapid.T) {
		size := func(name string) int { return rapid.IntRange(1, 4).Draw(t, name) }
		s := grid.Sizes{Context: size("cp"), Pipeline: size("pp"), Data: size("dp")}
		if rapid.Bool().Draw(t, "varied") && s.Pipeline > 1 {
			var places []map[string]int
			for range s.Pipeline {
				s.Tensor = append(s.Tensor, size("tp"))
			}
			for dp := range s.Data {
				for pp := range s.Pipeline {
					for cp := range s.Context {
						for tp := range s.Tensor[pp] {
							places = append(places, map[string]int{"tp": tp, "cp": cp, "pp": pp, "dp": dp})
						}
					}
				}
			}
			g, err := grid.New(s)
			if err != nil {
				t.Fatal(err)
			}
			for pp, n := range s.Tensor {
				if g.TensorSize(pp) != n {
					t.Fatalf("stage %d has a tensor group of %d, want %d", pp, g.TensorSize(pp), n)
				}
			}
			sameGrid(t, g, places)
			return
		}
		s.Tensor = []int{size("tp")}
		order := rapid.Permutation([]string{"tp", "cp", "pp", "dp"}).Draw(t, "order")
		s.Order = strings.Join(order, "-")
		g, err := grid.New(s)
		if err != nil {
			t.Fatal(err)
		}
		sameGrid(t, g, bruteForce(order, map[string]int{"tp": s.Tensor[0], "cp": s.Context, "pp": s.Pipeline, "dp": s.Data}))
	}
	for range 2 { // 100 each
		rapid.Check(t, random)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		sizes grid.Sizes
		want  []string
	}{
		{grid.Sizes{Pipeline: -1}, []string{"-1"}},
		{grid.Sizes{Tensor: []int{1 << 12}, Pipeline: 1 << 12}, []string{"4096", "1048576"}},
		{grid.Sizes{Tensor: []int{1 << 20}, Pipeline: 1 << 20, Data: 1 << 20, Context: 1 << 20}, []string{"1048576"}},
		{grid.Sizes{Pipeline: 2, Order: "tp-dp"}, []string{"tp-dp", "pp", "2"}},
		{grid.Sizes{Order: "tp-tp-dp"}, []string{"tp-tp-dp"}},
		{grid.Sizes{Order: "a-b-c"}, []string{"a-b-c"}},
		{grid.Sizes{Tensor: []int{1, 2, 1}, Pipeline: 2}, []string{"3 tensor sizes", "2 stages"}},
		{grid.Sizes{Tensor: []int{1, 2}, Pipeline: 2, Order: "tp-cp-dp-pp"}, []string{"tp-cp-dp-pp", "tp-cp-pp-dp"}},
		{grid.Sizes{Tensor: []int{2}, Context: 1, Pipeline: 4, Data: 3, World: 16}, []string{"16", "tp 2", "cp 1", "pp 4", "dp 3", "24"}},
		{grid.Sizes{Tensor: []int{1, 2}, Pipeline: 2, Data: 3, World: 16}, []string{"16", "1 + 2", "dp 3", "9"}},
		{grid.Sizes{Context: 2, Data: 3, Expert: 4}, []string{"expert groups of 4", "6 ranks", "cp 2 × dp 3"}},
		{grid.Sizes{Tensor: []int{2}, Data: 3, Expert: 4, ExpertTensor: 1}, []string{"expert groups of 4", "6 ranks of a stage",
			"tp 2 × cp 1 × dp 3"}},
		{grid.Sizes{Tensor: []int{4}, ExpertTensor: 2}, []string{"an expert tensor size of 2", "the tensor size, 4, or 1"}},
		{grid.Sizes{Tensor: []int{1, 2}, Pipeline: 2, ExpertTensor: 1}, []string{"an expert tensor size of 1", "the same tensor size",
			"[1 2]"}},
		{grid.Sizes{Expert: -1}, []string{"-1"}},
	} {
		_, err := grid.New(c.sizes)
		if !errors.Is(err, grid.ErrGrid) {
			t.Errorf("%+v: error %v, want %v", c.sizes, err, grid.ErrGrid)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %q lacks %q", c.sizes, err, want)
			}
		}
	}
}

func TestName(t *testing.T) {
	g, err := grid.New(grid.Sizes{Tensor: []int{2}, Pipeline: 2, Data: 2})
	if err != nil {
		t.Fatal(err)
	}
	for dim, want := range map[grid.Dimension]string{grid.Tensor: "tp of pp 1, dp 0", grid.Data: "dp of tp 1, pp 1",
		grid.Pipeline: "pp of tp 1, dp 0"} {
		if got := g.Name(3, dim); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := g.Name(3, dims...); got != "tp-cp-pp-dp" {
		t.Error(got)
	}
}

// TestCopies: the ranks with copies of the same weights are those of a context group in all replicas.
func TestCopies(t *testing.T) {
	for _, c := range []struct {
		sizes grid.Sizes
		rank  int
		name  string
		ranks []int
	}{
		{grid.Sizes{Tensor: []int{2}, Pipeline: 2, Data: 2}, 3, "dp of tp 1, pp 1", []int{3, 7}},
		{grid.Sizes{Tensor: []int{2}, Pipeline: 2, Context: 2}, 3, "cp-dp of tp 1, pp 0", []int{1, 3}},
		{grid.Sizes{Context: 2, Pipeline: 2, Data: 2}, 2, "cp-dp of pp 1", []int{2, 3, 6, 7}},
		{grid.Sizes{Tensor: []int{1, 2}, Context: 2, Pipeline: 2, Data: 2}, 5, "cp-dp of tp 1, pp 1", []int{3, 5, 9, 11}},
		{grid.Sizes{Pipeline: 2}, 1, "dp of pp 1", []int{1}},
	} {
		g, err := grid.New(c.sizes)
		if err != nil {
			t.Fatal(err)
		}
		if name, ranks := g.Name(c.rank, grid.Copies), g.Group(c.rank, grid.Copies); name != c.name || !slices.Equal(ranks, c.ranks) {
			t.Errorf("%v, rank %d: %q %v, want %q %v", g, c.rank, name, ranks, c.name, c.ranks)
		}
		if n := g.Size(grid.Copies); n != len(c.ranks) {
			t.Errorf("%v: %d copies, want %d", g, n, len(c.ranks))
		}
	}
}

// TestDescribe: what is said of a grid's groups is what counting them finds.
func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		sizes grid.Sizes
		want  string
	}{
		{grid.Sizes{Tensor: []int{2}, Pipeline: 2, Data: 2},
			"8 ranks, tp 2 × cp 1 × pp 2 × dp 2 in the order tp-cp-pp-dp: groups tp 4 of 2, pp 4 of 2, dp 4 of 2"},
		{grid.Sizes{Pipeline: 3}, "3 ranks, tp 1 × cp 1 × pp 3 × dp 1 in the order tp-cp-pp-dp: groups pp 1 of 3"},
		{grid.Sizes{}, "1 rank, tp 1 × cp 1 × pp 1 × dp 1 in the order tp-cp-pp-dp"},
		{grid.Sizes{Tensor: []int{1, 2, 4}, Pipeline: 3, Data: 2},
			"14 ranks, tp (1 + 2 + 4 over the stages) × cp 1 × dp 2 in the order tp-cp-pp-dp: groups tp 2 of 2 and 2 of 4, pp 2 of 2 and 2 of 3, dp 7 of 2"},
	} {
		g, err := grid.New(c.sizes)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Describe(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		for _, d := range grid.Dimensions() {
			counts := make(map[int]int)
			for _, group := range g.Groups(d) {
				counts[len(group)]++
			}
			for size, n := range counts {
				if want := fmt.Sprintf("%d of %d", n, size); size > 1 && !strings.Contains(g.Describe(), want) {
					t.Errorf("%q lacks %v %s", g.Describe(), d, want)
				}
			}
		}
	}
}
