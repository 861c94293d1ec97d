package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The example of Megatron-Core's documentation: 2 ranks with 2 chunks each, 5 microbatches in groups of 3.
var megatronExample = Spec{Schedule: Interleaved, Ranks: 2, Chunks: 2, Microbatches: 5, MicrobatchGroupSize: 3}

func ExampleSpec_VirtualMicrobatches() {
	table, err := megatronExample.VirtualMicrobatches()
	if err != nil {
		fmt.Println(err)
	}
	for _, v := range table {
		fmt.Printf("microbatch %d chunk %d\n", v.Microbatch, v.LocalChunk)
	}
	// Output:
	// microbatch 0 chunk 0
	// microbatch 1 chunk 0
	// microbatch 2 chunk 0
	// microbatch 0 chunk 1
	// microbatch 1 chunk 1
	// microbatch 2 chunk 1
	// microbatch 3 chunk 0
	// microbatch 4 chunk 0
	// microbatch 3 chunk 1
	// microbatch 4 chunk 1
}

func ExampleMegatronOrder() {
	table, err := megatronExample.VirtualMicrobatches()
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(MegatronOrder(table, 2, 5))
	// Output: [1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1] <nil>
}

func ExampleSpec_RankMicrobatches() {
	for rank := range 2 {
		n, err := megatronExample.RankMicrobatches(rank)
		fmt.Println(n.Total, n.WarmUp, n.Remaining, err)
	}
	// Output:
	// 10 5 5 <nil>
	// 10 3 7 <nil>
}

func ExampleEdgeSizes_Shape() {
	fmt.Println(EdgeSizes{Sequences: 4, Positions: 2048, Hidden: 1024}.Shape())
	fmt.Println(EdgeSizes{Sequences: 4, Positions: 2048, Hidden: 1024, ContextParallel: 2, TensorParallel: 8, SequenceParallel: true}.Shape())
	// Output:
	// [4 2048 1024] <nil>
	// [4 128 1024] <nil>
}

// TestMegatronOrder holds the orders of the example: rank 0's is the documentation's, and rank 1's follows with its
// warm-up of 3.
func TestMegatronOrder(t *testing.T) {
	table := generate(t, megatronExample)
	for rank, want := range []string{
		"[1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1]",
		"[1 1 1 2 -2 2 -2 2 -2 1 -1 1 -1 2 -1 2 -2 -2 -1 -1]",
	} {
		got, err := table.MegatronOrder(rank)
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("rank %d: %v, %v\nwant    %s", rank, got, err, want)
		}
	}
}

// TestMegatronWarmUp: the counts of Megatron-Core's formulas, written out.
func TestMegatronWarmUp(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want []int // warm-up by rank
	}{
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}, []int{3, 2, 1, 0}},
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 2}, []int{2, 2, 1, 0}},
		{Spec{Schedule: Interleaved, Ranks: 4, Chunks: 2, Microbatches: 8}, []int{10, 8, 6, 4}},
		{Spec{Schedule: Interleaved, Ranks: 4, Chunks: 3, Microbatches: 12, MicrobatchGroupSize: 6}, []int{18, 16, 14, 12}},
		{Spec{Schedule: Interleaved, Ranks: 4, Chunks: 2, Microbatches: 4}, []int{8, 8, 6, 4}},
		{Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 3, ForwardOnly: true}, []int{3, 3}},
		{Spec{Schedule: None, Ranks: 1, Chunks: 1, Microbatches: 3}, []int{0}},
	} {
		for rank, want := range c.want {
			total := c.spec.Microbatches * c.spec.Chunks
			if got, err := c.spec.RankMicrobatches(rank); err != nil || got != (RankMicrobatches{total, want, total - want}) {
				t.Errorf("%+v, rank %d: %+v, %v, want a warm-up of %d of %d", c.spec, rank, got, err, want, total)
			}
		}
	}
}

// TestMegatronOrderOfTable: the order by Megatron's way, from the schedule table and the warm-up, is that of the table that runs.
func TestMegatronOrderOfTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{Schedule: rapid.SampledFrom([]string{None, GPipe, OneFOneB, EagerOneFOneB, Interleaved, BreadthFirst}).Draw(t, "schedule"),
			Ranks: rapid.IntRange(1, 6).Draw(t, "ranks"), Chunks: 1, Microbatches: rapid.IntRange(1, 24).Draw(t, "microbatches"),
			ForwardOnly: rapid.Bool().Draw(t, "forward only")}
		switch s.Schedule {
		case None:
			s.Ranks = 1
		case Interleaved:
			s.Chunks = rapid.IntRange(2, 4).Draw(t, "chunks")
			s.MicrobatchGroupSize = rapid.IntRange(s.Ranks, 2*s.Ranks).Draw(t, "group")
		case BreadthFirst:
			s.Chunks = rapid.IntRange(1, 4).Draw(t, "chunks")
		}
		table, err := Generate(s)
		if err != nil {
			t.Skip()
		}
		virtual, err := s.VirtualMicrobatches()
		if err != nil {
			t.Fatal(err)
		}
		for rank := range s.Ranks {
			n, err := s.RankMicrobatches(rank)
			if err != nil {
				t.Fatal(err)
			}
			want, err := MegatronOrder(virtual, s.Chunks, n.WarmUp)
			if s.ForwardOnly {
				want = want[:n.Total]
			}
			got, errOf := table.MegatronOrder(rank)
			if !slices.Equal(got, want) || err != nil || errOf != nil {
				t.Fatalf("%+v, rank %d: %v, %v, by the schedule table %v, %v", s, rank, got, errOf, want, err)
			}
		}
	})
}

// TestMegatronRefused: what has no such order or count is refused, by its reason.
func TestMegatronRefused(t *testing.T) {
	counts := func(s Spec, rank int) error { _, err := s.RankMicrobatches(rank); return err }
	virtual := func(s Spec) error { _, err := s.VirtualMicrobatches(); return err }
	order := func(s Spec, rank int) error { _, err := generate(t, s).MegatronOrder(rank); return err }
	convert := func(v []VirtualMicrobatch, chunks, warmUp int) error {
		_, err := MegatronOrder(v, chunks, warmUp)
		return err
	}
	shape := func(e EdgeSizes) error { _, err := e.Shape(); return err }
	transfers := func(s Spec, rank int) error {
		_, err := EdgeSizes{Sequences: 1, Positions: 8, Hidden: 4}.Transfers(generate(t, s), rank)
		return err
	}
	pairs, err := ReadCSV("pairs.csv", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n")
	if err != nil {
		t.Fatal(err)
	}
	_, pairErr := pairs.MegatronOrder(0)
	zbv := Spec{Schedule: ZBV, Ranks: 2, Chunks: 2, Microbatches: 4}
	oneF := Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 4}
	for name, c := range map[string]struct {
		err  error
		is   error
		says string
	}{
		"counts of a V":          {counts(zbv, 0), ErrSpec, "schedule zb-v do not run all forwards in one order"},
		"schedule table of a U":  {virtual(Spec{Schedule: UShape, Ranks: 2, Chunks: 2, Microbatches: 4}), ErrSpec, "u-shape"},
		"schedule table of auto": {virtual(Spec{Schedule: Auto, Ranks: 2, Chunks: 2, Microbatches: 4}), ErrSpec, "auto"},
		"counts of a bad spec":   {counts(Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 2, Microbatches: 4}, 0), ErrSpec, "holds 1 chunk"},
		"counts of no such rank": {counts(oneF, 2), ErrSpec, "rank 2 does not exist: the ranks are 0 to 1"},
		"counts of many chunks":  {counts(Spec{Schedule: None, Ranks: 1, Chunks: 3, Microbatches: 2}, 0), ErrSpec, "3 chunks"},
		"order of I and W":       {order(zbv, 1), ErrNotation, "part of a backward"},
		"order of deferred W": {order(Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 4, DeferWeights: 1}, 1), ErrNotation,
			"part of a backward"},
		"order of pairs":        {pairErr, ErrNotation, "overlaps with the next one"},
		"order of no such rank": {order(oneF, -1), ErrRank, "rank -1 does not exist"},
		"warm-up too long":      {convert(make([]VirtualMicrobatch, 3), 1, 4), ErrSpec, "the warm-up has 4 of 3"},
		"no chunks":             {convert(nil, 0, 0), ErrSpec, "at least 1 chunk"},
		"chunk out of range":    {convert([]VirtualMicrobatch{{0, 0}, {0, 2}}, 2, 0), ErrSpec, "virtual microbatch 1 names chunk 2"},
		"positions that remain": {shape(EdgeSizes{Sequences: 1, Positions: 30, Hidden: 8, ContextParallel: 4}), ErrSpec,
			"4 ranks cannot share 30 positions"},
		"no positions":         {shape(EdgeSizes{Sequences: 1, Hidden: 8}), ErrSpec, "at least 1"},
		"transfers of no rank": {transfers(oneF, 2), ErrRank, "rank 2 does not exist"},
	} {
		if !errors.Is(c.err, c.is) || !strings.Contains(fmt.Sprint(c.err), c.says) {
			t.Errorf("%s: %v, want %v with %q", name, c.err, c.is, c.says)
		}
	}
}

// TestTransfers: who receives and sends what, in a loop, a V and a U.
func TestTransfers(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want []string // by rank
	}{
		"1f1b": {Spec{Schedule: OneFOneB, Ranks: 3, Chunks: 1, Microbatches: 4},
			[]string{"0: sends F, receives B", "1: receives F, sends F, receives B, sends B", "2: receives F, sends B"}},
		"forward only": {Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 4, ForwardOnly: true},
			[]string{"0: sends F", "1: receives F"}},
		"V": {Spec{Schedule: ZBV, Ranks: 2, Chunks: 2, Microbatches: 4},
			[]string{"0: sends F, receives B; 3: receives F, sends B",
				"1: receives F, sends F, receives B, sends B; 2: receives F, sends F, receives B, sends B"}},
		"U": {Spec{Schedule: UShape, Ranks: 2, Chunks: 2, Microbatches: 4},
			[]string{"0: sends F, receives B; 2: receives F, sends B", "1: receives F, sends F, receives B, sends B"}},
		"one rank": {Spec{Schedule: None, Ranks: 1, Chunks: 1, Microbatches: 4}, []string{"0: "}},
	} {
		table := generate(t, c.spec)
		for rank, want := range c.want {
			all, err := EdgeSizes{Sequences: 2, Positions: 8, Hidden: 4}.Transfers(table, rank)
			var chunks []string
			for _, x := range all {
				var does []string
				for _, d := range []struct {
					name  string
					shape []int
				}{{"receives F", x.RecvForward}, {"sends F", x.SendForward}, {"receives B", x.RecvBackward}, {"sends B", x.SendBackward}} {
					if d.shape != nil {
						does = append(does, d.name)
					}
					if d.shape != nil && !slices.Equal(d.shape, []int{2, 8, 4}) {
						t.Errorf("%s, rank %d: %s %v", name, rank, d.name, d.shape)
					}
				}
				chunks = append(chunks, fmt.Sprintf("%d: %s", x.Chunk, strings.Join(does, ", ")))
			}
			if got := strings.Join(chunks, "; "); err != nil || got != want {
				t.Errorf("%s, rank %d: %q, %v, want %q", name, rank, got, err, want)
			}
		}
	}
}
