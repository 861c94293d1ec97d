package stages_test

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// TestDecoderTogether: sequences that a decoder continues together, of different lengths, joining and leaving, have the
// logits that each has alone, to the bit, on every kernel path and with bfloat16.
func TestDecoderTogether(t *testing.T) {
	// More channels than the sums of a product are cut into, and products on both sides of the size that one core computes alone.
	learned := stages.Config{Family: stages.GPT2, Layers: 2, Hidden: 320, Heads: 4, KVHeads: 4, FFN: 300, Context: 16, Vocab: 210, Tie: true}
	rotary := stages.Config{Family: stages.Llama, Layers: 2, Hidden: 320, Heads: 4, KVHeads: 2, FFN: 600, Context: 16, Vocab: 500,
		RopeTheta: 1000}
	window := rotary
	window.Family, window.Window, window.Full = stages.Qwen3, 3, []int{1}
	passing := rotary
	passing.Family, passing.Layers, passing.Window, passing.Full = stages.Gemma4, 4, 3, []int{1, 3}
	passing.LayerInput, passing.SharedKV = 20, 2
	for _, path := range cpu.Paths() {
		for _, c := range []stages.Config{learned, rotary, window, passing} {
			for _, half := range []bool{false, true} {
				togetherOn(t, path, c, half)
			}
		}
	}
}

func togetherOn(t *testing.T, path string, c stages.Config, half bool) {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 2, Kernels: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	m := newModel(t, c)
	st, err := stages.NewStage(m, device.NewStream("decode"), []stages.ChunkSpec{{Last: len(m.Symbols())}},
		stages.Options{Inference: true, BF16: half})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Load(stages.InitWeights(3), false); err != nil {
		t.Fatal(err)
	}
	decoder, err := stages.NewDecoder(st)
	if err != nil {
		t.Fatal(err)
	}
	// The parts in which each sequence comes, and the step at which it joins.
	plans := []struct {
		joins int
		parts [][]int32
	}{
		{0, [][]int32{{3, 1, 4, 1}, {5}, {9}, {2}, {6}}},
		{1, [][]int32{{2}, {7}, {1, 8}, {2}}},
		{1, [][]int32{{1, 6, 1, 8, 0, 3}}},
		{3, [][]int32{{1}, {4, 4, 2, 1, 3}, {5}, {6}, {2}}},
	}
	alone := make([][][]float32, len(plans))
	for i, p := range plans {
		q := add(t, decoder)
		for _, part := range p.parts {
			logits, err := q.Next(part)
			if err != nil {
				t.Fatal(err)
			}
			alone[i] = append(alone[i], slices.Clone(logits))
		}
		q.Close()
	}
	sequences := make([]*stages.Sequence, len(plans))
	for step := range 8 {
		var feeds []stages.Feed
		var of []int
		for i, p := range plans {
			if at := step - p.joins; at >= 0 && at < len(p.parts) {
				if at == 0 {
					sequences[i] = add(t, decoder)
				}
				feeds, of = append(feeds, stages.Feed{Sequence: sequences[i], Tokens: p.parts[at]}), append(of, i)
			} else if at == len(p.parts) {
				sequences[i].Close()
			}
		}
		if len(feeds) == 0 {
			continue
		}
		logits, err := decoder.Next(feeds...)
		if err != nil {
			t.Fatal(err)
		}
		for k, i := range of {
			if at := step - plans[i].joins; !slices.Equal(logits[k], alone[i][at]) {
				t.Errorf("%s, %s, window %d, bfloat16 %v: part %d of sequence %d has other logits than alone", path, c.Family, c.Window, half, at, i)
			}
		}
	}
}

func add(t *testing.T, d *stages.Decoder) *stages.Sequence {
	t.Helper()
	q, err := d.Add(1000)
	if err != nil {
		t.Fatal(err)
	}
	return q
}
