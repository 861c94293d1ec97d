package grid_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
)

// TestExpertGroups has the groups of a world of 8 with TP = PP = DP = 2 and experts shared by two ranks, in two orders.
func TestExpertGroups(t *testing.T) {
	for _, c := range []struct {
		order   string
		ep, edp [][]int
	}{
		{"tp-pp-dp", [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
		{"tp-dp-pp", [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}, [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
	} {
		g, err := grid.New(grid.Sizes{Tensor: []int{2}, Pipeline: 2, Data: 2, Expert: 2, Order: c.order})
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Groups(grid.Expert); !reflect.DeepEqual(got, c.ep) {
			t.Errorf("%s: ep %v, want %v", c.order, got, c.ep)
		}
		if got := g.Groups(grid.ExpertCopies); !reflect.DeepEqual(got, c.edp) {
			t.Errorf("%s: edp %v, want %v", c.order, got, c.edp)
		}
	}
}

// TestMegatronExperts compares with the groups that Megatron-Core 0.16 makes (RankGenerator of parallel_state.py) for worlds of up to 8
// ranks that it accepts. experts.txt has a line for each with an expert tensor size that equals the tensor size. wholeexperts.txt,
// computed by its rule, has one for each with an expert tensor size of 1, in several orders.
func TestMegatronExperts(t *testing.T) {
	for file, tensor := range map[string]int{"testdata/experts.txt": 0, "testdata/wholeexperts.txt": 1} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		show := func(groups [][]int) string {
			var all []string
			for _, g := range groups {
				all = append(all, strings.ReplaceAll(strings.Trim(fmt.Sprint(g), "[]"), " ", ","))
			}
			return strings.Join(all, " ")
		}
		for line := range strings.Lines(string(text)) {
			s := grid.Sizes{Tensor: []int{0}, ExpertTensor: tensor}
			head, _, _ := strings.Cut(line, ":")
			if _, err := fmt.Sscanf(head, "%s tp %d cp %d pp %d dp %d ep %d", &s.Order, &s.Tensor[0], &s.Context, &s.Pipeline, &s.Data,
				&s.Expert); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			g, err := grid.New(s)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%s: ep %s: edp %s\n", head, show(g.Groups(grid.Expert)), show(g.Groups(grid.ExpertCopies)))
			if got != line {
				t.Errorf("%q, want %q", got, line)
			}
		}
	}
}

// TestExpertPlaces: whatever the sizes and the order, expert groups are consecutive ranks of the copies, or with whole experts of all ranks
// of a stage; a rank of each has each place, and names tell groups apart. Twins are the copies with the same place.
func TestExpertPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string) int { return rapid.IntRange(1, 4).Draw(t, name) }
		s := grid.Sizes{Tensor: []int{size("tp")}, Context: size("cp"), Pipeline: size("pp"), Data: size("dp")}
		if s.Pipeline == 2 && rapid.Bool().Draw(t, "varied") {
			s.Tensor = append(s.Tensor, size("tp of the second stage"))
		} else {
			s.Order = strings.Join(rapid.Permutation([]string{"tp", "cp", "pp", "dp"}).Draw(t, "order"), "-")
		}
		sharers, of := s.Context*s.Data, []grid.Dimension{grid.Copies}
		if len(s.Tensor) == 1 && s.Tensor[0] > 1 && rapid.Bool().Draw(t, "whole") {
			s.ExpertTensor, sharers, of = 1, sharers*s.Tensor[0], []grid.Dimension{grid.Tensor, grid.Copies}
		}
		var sizes []int
		for n := 1; n <= sharers; n++ {
			if sharers%n == 0 {
				sizes = append(sizes, n)
			}
		}
		s.Expert = rapid.SampledFrom(sizes).Draw(t, "ep")
		g, err := grid.New(s)
		if err != nil {
			t.Fatal(err)
		}
		names, alone := make(map[string][]int), false
		for rank := range g.World() {
			copies, ep, edp := g.Group(rank, of...), g.Group(rank, grid.Expert), g.Group(rank, grid.ExpertCopies)
			place, group := g.ExpertPlace(rank)
			if len(ep) != g.Size(grid.Expert) || len(edp) != g.Size(grid.ExpertCopies) || len(ep)*len(edp) != len(copies) {
				t.Fatalf("rank %d: %d × %d of %d", rank, len(ep), len(edp), len(copies))
			}
			if ep[place] != rank || edp[group] != rank || copies[group*s.Expert+place] != rank ||
				!slices.Equal(ep, copies[group*s.Expert:(group+1)*s.Expert]) {
				t.Fatalf("rank %d has place %d in %v and %d in %v, of %v", rank, place, ep, group, edp, copies)
			}
			twins := slices.DeleteFunc(g.Group(rank, grid.Copies), func(other int) bool { return !slices.Contains(edp, other) })
			if !slices.Equal(g.Twins(rank), twins) {
				t.Fatalf("rank %d has the twins %v, want %v", rank, g.Twins(rank), twins)
			}
			alone = alone || len(twins) == 1
			for _, d := range []grid.Dimension{grid.Expert, grid.ExpertCopies} {
				name := g.Name(rank, d)
				if other, there := names[name]; there && !slices.Equal(other, g.Group(rank, d)) {
					t.Fatalf("%q is %v and %v", name, other, g.Group(rank, d))
				}
				names[name] = g.Group(rank, d)
			}
		}
		if g.Replicated() == alone {
			t.Fatalf("each rank has twins: %v, want %v", g.Replicated(), !alone)
		}
	})
}
