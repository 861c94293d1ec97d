package stages_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestDropAddresses: what is dropped of a sequence is the same whichever microbatch it is in and however long that was made,
// and no two sequences of a step have the same pattern.
func TestDropAddresses(t *testing.T) {
	cfg := stages.Config{Family: stages.GPT2, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 24, Vocab: 19, Dropout: 0.1,
		Tie: true}
	m, err := stages.NewModel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dev := newDevice(t, 1)
	stream := dev.NewStream("masks")
	stage, err := stages.NewStage(m, stream, []stages.ChunkSpec{{Last: len(m.Symbols())}}, stages.Options{Seed: 5, Optimizer: adamw})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stage.Close() }()
	// dropped is a microbatch's pattern by sequence, of lengths[i] positions each.
	dropped := func(first, sequences, positions int) (all [][]float32) {
		l := stream.NewList()
		x := l.Alloc(tensorops.Float32, sequences, positions, cfg.Hidden)
		y := l.AllocLike(x)
		l.Fill(x, 1)
		stage.DropResidual(l, stages.Microbatch{Step: 3, Train: true, FirstSequence: first, Sequences: sequences, Positions: positions}, y, x,
			"here", 0.5)
		host := make([]float32, sequences*positions*cfg.Hidden)
		l.Fetch(tensorops.HostBytes(host), y)
		l.Free(x)
		l.Free(y)
		if err := tensorops.Run(stream, l); err != nil {
			t.Fatal(err)
		}
		return slices.Collect(slices.Chunk(host, positions*cfg.Hidden))
	}
	whole := dropped(0, 8, cfg.Context)
	for _, c := range []struct{ first, sequences, positions int }{{0, 8, 24}, {0, 1, 24}, {1, 1, 24}, {4, 1, 6}, {2, 3, 6}, {0, 8, 7},
		{5, 3, 23}, {7, 1, 1}} {
		for i, got := range dropped(c.first, c.sequences, c.positions) {
			if want := whole[c.first+i][:c.positions*cfg.Hidden]; !slices.Equal(got, want) {
				t.Errorf("sequence %d is dropped otherwise in a microbatch of %d from %d on with %d positions", c.first+i, c.sequences, c.first,
					c.positions)
			}
		}
	}
	seen := make(map[string]string)
	for sequence, pattern := range whole {
		for position, row := range slices.Collect(slices.Chunk(pattern, cfg.Hidden)) {
			at := fmt.Sprintf("position %d of sequence %d", position, sequence)
			if other, ok := seen[fmt.Sprint(row)]; ok {
				t.Errorf("%s and %s are dropped alike", at, other)
			}
			seen[fmt.Sprint(row)] = at
		}
	}
}

// TestOwnMasks: random bits of a layer of a program's own are of a sample's place in the batch, not of the microbatch.
func TestOwnMasks(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: stages.GPT2, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 24, Vocab: 19})
	if err != nil {
		t.Fatal(err)
	}
	stage, err := stages.NewStage(m, newDevice(t, 1).NewStream("masks"), []stages.ChunkSpec{{Last: len(m.Symbols())}},
		stages.Options{Optimizer: adamw})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stage.Close() }()
	at := func(first, sample int) tensorops.Mask {
		return stage.OwnMask(stages.Microbatch{Step: 1, Train: true, FirstSequence: first, Sequences: 4}, "own", 0.5, sample)
	}
	if a, b := at(5, 2), at(7, 0); a != b {
		t.Errorf("sample 7 has %+v and %+v", a, b)
	}
	if a, b := at(0, 1), at(0, 2); b.First-a.First < 1<<32 {
		t.Errorf("two samples' bits are %d apart", b.First-a.First)
	}
	if m := stage.OwnMask(stages.Microbatch{Sequences: 4}, "own", 0.5, 1); m != (tensorops.Mask{}) {
		t.Errorf("outside of training there is a mask: %+v", m)
	}
}
