package grid_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
)

func TestGroups(t *testing.T) {
	for _, c := range []struct {
		order      string
		tp, pp, dp [][]int
	}{
		{"tp-pp-dp", [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{"tp-dp-pp", [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
	} {
		g, err := grid.NewGrid(2, 2, 2, c.order)
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

func TestNewGridRefuses(t *testing.T) {
	for _, c := range []struct {
		pp, tp, dp int
		order      string
	}{{0, 1, 1, "tp-pp-dp"}, {1, -1, 1, "tp-pp-dp"}, {1 << 12, 1 << 12, 1 << 12, "tp-pp-dp"}, {1, 1, 1, "tp-pp"}, {1, 1, 1, "tp-tp-dp"}, {1, 1, 1, "a-b-c"}, {1, 1, 1, ""}} {
		if _, err := grid.NewGrid(c.pp, c.tp, c.dp, c.order); !errors.Is(err, grid.ErrGrid) {
			t.Errorf("%+v: error %v, want %v", c, err, grid.ErrGrid)
		}
	}
}
