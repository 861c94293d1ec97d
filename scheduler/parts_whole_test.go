package scheduler

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWhole: a table in parts of any order becomes the whole table that it was cut from, which cuts into the same parts again.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		whole, err := Generate(rapid.SampledFrom(pairSpecs).Draw(rt, "spec"))
		if err != nil {
			rt.Fatal(err)
		}
		exchanges := ExpertLayers(rapid.IntRange(1, 3).Draw(rt, "layers"))
		cut, err := whole.Cut(exchanges)
		if err != nil {
			rt.Fatal(err)
		}
		for _, row := range cut.Ranks {
			for i := 0; i < len(row); i += Width(row, i) {
				otherTurns(rt, row[i:i+Width(row, i)])
			}
		}
		if _, err := Check(cut); err != nil {
			rt.Fatalf("%v\n%v", err, cut)
		}
		again, err := cut.Whole()
		if err != nil {
			rt.Fatalf("%v\n%v", err, cut)
		}
		if again.String() != whole.String() || again.HasParts() || !again.HasTurns() || cut.HasTurns() {
			rt.Errorf("%v\nbecomes\n%v\nwant\n%v", cut, again, whole)
		}
		if parts, err := again.Cut(exchanges); err != nil || parts.String() != cut.String() || parts.HasTurns() {
			rt.Errorf("%v: %v\nbecomes\n%v", err, cut, parts)
		}
		if same, err := again.Whole(); same != again || err != nil {
			rt.Errorf("a whole table becomes another one: %v", err)
		}
	})
}

// otherTurns gives the parts of a pair any order, in which those of each action keep theirs and exchanges follow at once.
func otherTurns(rt *rapid.T, group []Action) {
	if group[0].Part == 0 {
		return
	}
	var sides [2][][]Action // parts with their exchanges
	for i, a := range group {
		if side := &sides[a.side()]; a.Type.IsExchange() {
			(*side)[len(*side)-1] = append((*side)[len(*side)-1], a)
		} else {
			*side = append(*side, group[i:i+1:i+1])
		}
	}
	var out []Action
	for len(sides[0])+len(sides[1]) > 0 {
		side := &sides[0]
		if len(*side) == 0 || len(sides[1]) > 0 && rapid.Bool().Draw(rt, "backward") {
			side = &sides[1]
		}
		out = append(out, (*side)[0]...)
		*side = (*side)[1:]
	}
	for i := range out {
		out[i].Overlap = i < len(out)-1
	}
	copy(group, out)
}

// TestOwnTurns: the order of a table's parts, also of an action alone, and what is refused about it.
func TestOwnTurns(t *testing.T) {
	const alone = "(0F0.1;0FD0.1;0F0.2;0FC0.2;0F0.3)OVERLAP_F_B"
	table := parseTable(t, alone+" "+strings.Replace(inParts, "0FD1.1;0B0.1;0BD0.1;0F1.2;0FC1.2;",
		"0FD1.1;0F1.2;0FC1.2;0B0.1;0BD0.1;", 1)+" 0B1")
	whole, err := table.Whole()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := whole.String(), "0F0 (0F1;0B0)OVERLAP_F_B 0B1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for position, want := range [][]int{{0, 0, 0}, {0, 0, 1, 1, 0, 1}, nil, nil} {
		if got := whole.OwnTurns(0, position); !slices.Equal(got, want) {
			t.Errorf("the turns at %d are %v, want %v", position, got, want)
		}
	}
	forward, backward := []Type{FD, FC}, []Type{BD, BC}
	for _, c := range []struct {
		position  int
		exchanges [][]Type
		want      []int
		says      string
	}{
		{0, [][]Type{forward}, []int{0, 0, 0}, ""},
		{0, [][]Type{{FD, FC, FD, FC}}, nil, "0F0 is written in 3 parts, but this model exchanges tokens 4 times in it: write it whole, " +
			"or in 5 parts"},
		{1, [][]Type{forward, backward}, []int{0, 0, 1, 1, 0, 1}, ""},
		{1, [][]Type{forward, nil}, nil, "0B0 is written in 3 parts, but this model exchanges tokens 0 times in it: write it whole"},
		{1, [][]Type{forward, {BD, BD}}, nil, "exchange 2 of 0B0 is written as BC, but is BD with this model"},
		{3, [][]Type{backward}, []int{0, 0, 0}, ""},
	} {
		got, err := whole.TurnsOf(0, c.position, c.exchanges...)
		if !slices.Equal(got, c.want) || (err != nil) != (c.says != "") || err != nil && (!errors.Is(err, ErrExchange) ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v at %d: %v, %v, want %v, %q", c.exchanges, c.position, got, err, c.want, c.says)
		}
	}
	if _, err := whole.Cut(ExpertLayers(2)); !errors.Is(err, ErrExchange) ||
		!strings.Contains(err.Error(), "0F1 is written in 3 parts, but this model exchanges tokens 4 times") {
		t.Errorf("a model with two layers: %v", err)
	}
	for _, moved := range []string{"0F1.1;0B0.1;0FD1.1;0BD0.1;", "0F1.1;0B0.1;0BD0.1;0FD1.1;"} {
		table := parseTable(t, "0F0 "+strings.Replace(inParts, "0F1.1;0FD1.1;0B0.1;0BD0.1;", moved, 1)+" 0B1")
		if _, err := Check(table); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Whole(); !errors.Is(err, ErrExchange) ||
			!strings.Contains(err.Error(), "does not stand right after part 1 of its action") {
			t.Errorf("%s: %v", moved, err)
		}
	}
}
