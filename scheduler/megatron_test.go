package scheduler

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestOrder holds the orders of 2 ranks with 2 chunks, and 5 microbatches in groups of
// 3: rank 0's is the example of Megatron's documentation, and rank 1's follows with
// its warm-up of 3.
func TestOrder(t *testing.T) {
	table := generate(t, Spec{Schedule: Interleaved, Ranks: 2, Chunks: 2, Microbatches: 5, Group: 3})
	for rank, want := range []string{
		"[1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1]",
		"[1 1 1 2 -2 2 -2 2 -2 1 -1 1 -1 2 -1 2 -2 -2 -1 -1]",
	} {
		order, err := Order(table, rank)
		if got := fmt.Sprint(order); err != nil || got != want {
			t.Errorf("rank %d: %s, %v\nwant    %s", rank, got, err, want)
		}
	}
}

// TestOrderFromVisits compares with Megatron's way to an order: forwards and backwards
// by the formulas c+1 and c'−v from the table of visits, after the warm-up in turn.
func TestOrderFromVisits(t *testing.T) {
	spec := Spec{Schedule: Interleaved, Ranks: 4, Chunks: 3, Microbatches: 11, Group: 6}
	table := generate(t, spec)
	visits := spec.visits()
	for rank := range spec.Ranks {
		warmUp := min(2*(spec.Ranks-rank-1)+(spec.Chunks-1)*spec.Group, len(visits))
		var want []int
		for i := range len(visits) + warmUp {
			if i < len(visits) {
				want = append(want, visits[i].chunk+1)
			}
			if i >= warmUp {
				want = append(want, visits[i-warmUp].chunk-spec.Chunks)
			}
		}
		got, err := Order(table, rank)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("rank %d: %v, %v\nwant    %v", rank, got, err, want)
		}
	}
}

func TestNoOrder(t *testing.T) {
	looped := generate(t, Spec{Ranks: 2, Chunks: 2, Microbatches: 4})
	parsed := func(text string) *Table {
		table, err := ParseTable(text)
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	for _, c := range []struct {
		name  string
		table *Table
		rank  int
		want  string
	}{
		{"rank below", looped, -1, "rank -1, but the ranks are 0 to 1"},
		{"rank above", looped, 2, "rank 2, but the ranks are 0 to 1"},
		{"no ranks", &Table{}, 0, "rank 0, but the ranks are 0 to -1"},
		{"V", generate(t, Spec{Schedule: ZBV, Ranks: 2, Chunks: 2, Microbatches: 4}), 0, "placement V, but chunk c"},
		{"U", generate(t, Spec{Schedule: UShape, Ranks: 2, Chunks: 2, Microbatches: 4}), 0, "placement U, but chunk c"},
		{"split", generate(t, Spec{Schedule: ZBH1, Ranks: 2, Chunks: 1, Microbatches: 4}), 0, "0I0 splits a backward"},
		{"pair", parsed("0F0 (0F1;0B0)OVERLAP_F_B 0B1"), 0, "0F1 runs together with the next action"},
		{"microbatches out of turn", parsed("0F1 0B1 0F0 0B0"), 0, "0F1 stands where microbatch 0 is due"},
		{"wrong rank", parsed("0F0 0B0\n1F0 1B0 0F1"), 1, "0F1 is on rank 1, but stage 0 is on rank 0"},
	} {
		order, err := Order(c.table, c.rank)
		if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %s", c.name, order, err, c.want)
		}
	}
}

// TestFromOrder: an order is read back as the table that it was made of.
func TestFromOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table, err := Generate(drawSpec(rt))
		if err != nil {
			rt.Fatal(err)
		}
		table.Schedule = ""
		var orders [][]int
		for rank := range table.NumRanks() {
			order, err := Order(table, rank)
			if err != nil {
				rt.Fatalf("%s\n%v", table, err)
			}
			orders = append(orders, order)
		}
		got, err := FromOrder(orders)
		if err != nil || !reflect.DeepEqual(got, table) {
			rt.Fatalf("%v became %+v, %v, want %+v", orders, got, err, table)
		}
	})
}

func TestBrokenOrders(t *testing.T) {
	for _, c := range []struct {
		orders [][]int
		want   error
		text   string
	}{
		{nil, ErrTable, "ranks 0"},
		{[][]int{{}}, ErrTable, "stages 0"},
		{[][]int{{1, -1}, {1, 0}}, ErrSpec, "order of rank 1, position 1: 0, want"},
		{[][]int{{1, -1, 60000000}}, ErrSpec, "order of rank 0, position 2: 60000000, want"},
		{[][]int{{1, -1, -60000000}}, ErrSpec, "position 2: -60000000, want"},
		{[][]int{{1, -1, 2, -2}, {1, -1}}, ErrIncomplete, "3F0 is missing on rank 1"},
		{[][]int{{-1, 1}}, ErrOrder, "0B0 on rank 0 comes before 0F0"},
		{[][]int{{1, 2, -1, -2}}, ErrDeadlock, "needs the output of 1B0"},
	} {
		table, err := FromOrder(c.orders)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %+v, %v; want %s", c.orders, table, err, c.text)
		}
	}
}
