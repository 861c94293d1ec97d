package infer

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSampler: what is left to draw from, and with which probabilities, is what transformers leaves
// (testdata/sampling.py).
func TestSampler(t *testing.T) {
	b, err := os.ReadFile("testdata/sampling.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Logits            []float32
		Seen              []int32
		RepetitionPenalty float64 `json:"repetition_penalty"`
		Temperature       float64
		TopK              int     `json:"top_k"`
		TopP              float64 `json:"top_p"`
		MinP              float64 `json:"min_p"`
		Probabilities     map[string]float64
	}
	if err := json.Unmarshal(b, &rows); err != nil || len(rows) == 0 {
		t.Fatal(err, len(rows))
	}
	for i, r := range rows {
		s := newSampler(TextOptions{Temperature: r.Temperature, TopK: r.TopK, TopP: r.TopP, MinP: r.MinP,
			RepetitionPenalty: r.RepetitionPenalty}, len(r.Logits))
		s.seen(r.Seen...)
		kept := s.filter(s.penalized(r.Logits))
		if len(kept) != len(r.Probabilities) {
			t.Errorf("row %d: %d tokens are left, want %d", i, len(kept), len(r.Probabilities))
			continue
		}
		var sum float64
		for _, c := range kept {
			sum += c.p
		}
		for _, c := range kept {
			if want := r.Probabilities[strconv.Itoa(int(c.id))]; math.Abs(c.p/sum-want) > 1e-6 {
				t.Errorf("row %d: token %d has %g, want %g", i, c.id, c.p/sum, want)
			}
		}
		if id := s.choose(r.Logits, 0); !slices.ContainsFunc(kept, func(c candidate) bool { return c.id == id }) {
			t.Errorf("row %d: token %d was drawn, which was left out", i, id)
		}
		s.o.Temperature = 0
		if id := s.choose(r.Logits, 0); r.Probabilities[strconv.Itoa(int(id))] != slices.Max(values(r.Probabilities)) {
			t.Errorf("row %d: token %d is not the most likely one", i, id)
		}
	}
}

func values(m map[string]float64) (v []float64) {
	for _, x := range m {
		v = append(v, x)
	}
	return v
}

// TestStopper: however a text comes, what is written of it ends before the first stop.
func TestStopper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.SampledFrom([]rune("abé")), 0, 30, -1)
		text := letters.Draw(t, "text")
		stops := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("abé")), 1, 4, -1), 0, 3).Draw(t, "stops")
		want, end := text, false
		for i := 0; i <= len(text) && !end; i++ {
			for _, stop := range stops {
				if before, found := strings.CutSuffix(text[:i], stop); found && len(before) < len(want) {
					want, end = before, true
				}
			}
		}
		s, got, ended := newStopper(stops), "", false
		for rest := text; rest != "" && !ended; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			var out []byte
			out, ended = s.take([]byte(rest[:n]))
			got, rest = got+string(out), rest[n:]
		}
		if !ended {
			got += string(s.rest())
		}
		if ended != end || got != want {
			t.Fatalf("%q with %q gave %q, ended %v; want %q, %v", text, stops, got, ended, want, end)
		}
	})
}

// TestLikeliest: the selection is the start of the sorted tokens.
func TestLikeliest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []candidate
		for id, logit := range rapid.SliceOfN(rapid.IntRange(-3, 9), 1, 60).Draw(t, "logits") {
			all = append(all, candidate{id: int32(id), logit: float64(logit)})
		}
		k := rapid.IntRange(1, 70).Draw(t, "k")
		want := slices.SortedFunc(slices.Values(all), likelier)[:min(k, len(all))]
		got := slices.Clone(likeliest(all, k))
		slices.SortFunc(got, likelier)
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
