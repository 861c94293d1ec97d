package data

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// recordsOf makes records of so many positions each. Each id is unique.
func recordsOf(positions []int) *Records {
	docs, id := make([]Document, len(positions)), int32(0)
	for i, n := range positions {
		d := Document{IDs: make([]int32, n+1), Learn: make([]bool, n+1)}
		for k := range d.IDs {
			d.IDs[k], d.Learn[k] = id, id%3 > 0
			id++
		}
		docs[i] = d
	}
	held, err := HoldDocuments(docs, int(id))
	if err != nil {
		panic(err)
	}
	r := NewRecords(held)
	for i := range docs {
		r.Add(i, held.IDs(i))
	}
	return r
}

// TestPacks: every record is in one pack, in one piece, with its own starts and targets; no pack is longer than the
// context, and two packs that were open together do not fit into one.
func TestPacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		context := rapid.IntRange(1, 40).Draw(t, "context")
		lengths := rapid.SliceOfN(rapid.IntRange(1, context), 1, 300).Draw(t, "positions")
		r := recordsOf(lengths)
		p := PackShuffled(r, context, rapid.Uint64().Draw(t, "seed"))
		seen := make([]bool, len(lengths))
		for i := range p.Len() {
			n := p.Positions(i)
			if n < 1 || n > context {
				t.Fatalf("pack %d has %d positions of %d", i, n, context)
			}
			tokens, targets, starts := make([]int32, n), make([]int32, n), make([]int32, n)
			if err := p.Fill(i, tokens, targets); err != nil {
				t.Fatal(err)
			}
			if err := p.Starts(i, starts); err != nil {
				t.Fatal(err)
			}
			at := 0
			for _, record := range p.Records(i) {
				if seen[record] {
					t.Fatalf("record %d comes twice", record)
				}
				seen[record] = true
				k := r.Positions(int(record))
				one, to := make([]int32, k), make([]int32, k)
				if err := r.Fill(int(record), one, to); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(tokens[at:at+k], one) || !slices.Equal(targets[at:at+k], to) ||
					slices.ContainsFunc(starts[at:at+k], func(s int32) bool { return int(s) != at }) {
					t.Fatalf("record %d at %d of pack %d: %v, %v, %v", record, at, i, tokens, targets, starts)
				}
				at += k
			}
		}
		if i := slices.Index(seen, false); i >= 0 {
			t.Fatalf("record %d is in no pack", i)
		}
		if again := PackShuffled(r, context, 7); !slices.Equal(again.order, PackShuffled(r, context, 7).order) {
			t.Fatal("a seed gives two packings")
		}
	})
}

// TestPackerHolds: a packer holds at most OpenPacks sequences.
func TestPackerHolds(t *testing.T) {
	p, n := NewPacker[int](100), 0
	for i := range 10_000 {
		if done := p.Add(i, 51+i%49); done != nil {
			n += len(done)
		}
		if len(p.open) > OpenPacks {
			t.Fatalf("%d sequences are open", len(p.open))
		}
	}
	for pack := p.Rest(); pack != nil; pack = p.Rest() {
		n += len(pack)
	}
	if n != 10_000 {
		t.Errorf("%d of 10,000 records came back", n)
	}
}

// TestBounds compares a window's starts and masked targets with those of each id's document.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ids, document []int32
		var b Bounds
		for d, n := range rapid.SliceOfN(rapid.IntRange(1, 9), 1, 30).Draw(t, "lengths") {
			b = append(b, int64(len(ids)))
			for range n {
				ids, document = append(ids, int32(len(ids))), append(document, int32(d))
			}
		}
		if err := b.Check(int64(len(ids))); err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, len(ids)).Draw(t, "window")
		place := rapid.IntRange(0, len(ids)-n).Draw(t, "place")
		tokens, targets, starts := make([]int32, n), make([]int32, n), make([]int32, n)
		if err := Fill(NewTokens(ids), int64(place), tokens, targets); err != nil {
			t.Fatal(err)
		}
		b.Mask(int64(place), targets)
		b.Starts(int64(place), starts)
		for k := range n {
			at, want := place+k, int32(Masked)
			if at+1 < len(ids) && document[at+1] == document[at] {
				want = ids[at+1]
			}
			start := max(b[document[at]]-int64(place), 0)
			if targets[k] != want || int64(starts[k]) != start {
				t.Fatalf("position %d of a window at %d: target %d, start %d; want %d, %d", k, place, targets[k], starts[k], want, start)
			}
		}
	})
	if err := (Bounds{0, 3, 3}).Check(9); err == nil {
		t.Error("a document without ids was accepted")
	}
}
