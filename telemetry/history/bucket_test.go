package history

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// made is a history of a text.
func made(t interface{ Fatal(...any) }, dir, text string) *History {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	fsys := openFolder(t, dir)
	defer fsys.Close() //nolint:errcheck // of a test
	h, err := open(fsys, file, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestBuckets compares buckets with what the values say one by one.
func TestBuckets(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		n := rapid.IntRange(0, 1500).Draw(t, "rows")
		gap := rapid.IntRange(1, 5).Draw(t, "gap")
		seed := rapid.IntRange(1, 1000).Draw(t, "seed")
		for i := range n {
			fmt.Fprintf(&text, `{"step":%d,"tokens":%d,"step_ms":%d`, i*gap, i*i, i%7)
			switch v := (i*seed + seed) % 101; {
			case v < 5: // absent
			case v < 10:
				text.WriteString(`,"loss":null`)
			default:
				fmt.Fprintf(&text, `,"loss":%d.%d`, v-50, i%10)
			}
			text.WriteString("}\n")
		}
		h := made(t, dir, text.String())
		by := rapid.SampledFrom([]Axis{BySteps, ByTokens, BySeconds}).Draw(t, "axis")
		end := rapid.OneOf(rapid.Float64Range(-10, float64(n*gap+10)), rapid.SampledFrom([]float64{math.Inf(-1), math.Inf(1), math.NaN(), 0}))
		from, to, buckets := end.Draw(t, "from"), end.Draw(t, "to"), rapid.IntRange(0, 300).Draw(t, "buckets")
		got := h.Series("loss", by, from, to, buckets)
		steps, values := h.Figures("loss")
		if math.IsNaN(from) {
			from = math.Inf(-1)
		}
		if math.IsNaN(to) {
			to = math.Inf(1)
		}
		var inside []int
		for i, step := range steps {
			if x := h.rows.x(by, step/gap); x >= from && x <= to {
				inside = append(inside, i)
			}
		}
		if buckets == 0 {
			inside = nil
		}
		if len(inside) > 0 && len(inside) <= buckets && len(got) != len(inside) || len(got) > buckets {
			t.Fatalf("%d buckets of %d values, %d were asked for", len(got), len(inside), buckets)
		}
		for k, b := range got {
			if b.N < 1 || b.N > len(inside) {
				t.Fatalf("bucket %d has %d of %d values", k, b.N, len(inside))
			}
			own := inside[:b.N]
			inside = inside[b.N:]
			low, high, sum, numbers := math.Inf(1), math.Inf(-1), 0.0, 0
			for _, i := range own {
				if v := values[i]; !math.IsNaN(v) {
					low, high, sum, numbers = min(low, v), max(high, v), sum+v, numbers+1
				}
			}
			last := own[len(own)-1]
			sameLast := b.Last == values[last] || math.IsNaN(b.Last) && math.IsNaN(values[last])
			if b.Step != steps[last] || b.X != h.rows.x(by, steps[last]/gap) || !sameLast || b.Nulls != b.N-numbers {
				t.Fatalf("bucket %d is %+v, its last value is %v at step %d, and %d are numbers", k, b, values[last], steps[last], numbers)
			}
			if numbers == 0 && math.IsNaN(b.Min) && math.IsNaN(b.Max) && math.IsNaN(b.Mean) {
				continue
			}
			if b.Min != low || b.Max != high || !(math.Abs(b.Mean-sum/float64(numbers)) <= 1e-9) {
				t.Fatalf("bucket %d is %+v, want %v to %v with mean %v", k, b, low, high, sum/float64(numbers))
			}
		}
		if len(inside) > 0 {
			t.Fatalf("%d values are in no bucket", len(inside))
		}
		if k := len(got); k > 1 && to-from > 0 && !math.IsInf(to-from, 0) && by == BySteps {
			width := (min(to, h.rows.x(by, n-1)) - max(from, 0)) / float64(buckets)
			for i := 1; i < k; i++ {
				if got[i].N > int(width/float64(gap))+2 {
					t.Fatalf("bucket %d has %d values over %v steps, %d apart", i, got[i].N, width, gap)
				}
			}
		}
	})
}

func TestMeanOfLargeFigures(t *testing.T) {
	h := made(t, t.TempDir(), strings.Repeat(`{"step":1,"loss":1e308}`+"\n", 1)+`{"step":2,"loss":1.5e308}`+"\n"+`{"step":3,"loss":1.2e308}`+
		"\n")
	b := h.Series("loss", BySteps, 0, 9, 1)
	if len(b) != 1 || b[0].Mean < 1e308 || b[0].Mean > 1.5e308 {
		t.Errorf("%+v", b)
	}
}

func TestAxes(t *testing.T) {
	h := made(t, t.TempDir(), `{"step":0,"val_loss":5}`+"\n"+`{"step":1,"loss":4,"tokens":64,"step_ms":500}`+"\n"+
		`{"step":2,"loss":3,"tokens":128,"step_ms":250,"val_loss":2}`+"\n")
	for _, c := range []struct {
		by   Axis
		to   float64
		text string
	}{{BySteps, 2, "steps"}, {ByTokens, 128, "tokens"}, {BySeconds, 0.75, "seconds"}} {
		from, to, ok := h.Span(c.by)
		if from != 0 || to != c.to || !ok || c.by.String() != c.text {
			t.Errorf("%v: from %v to %v, %v", c.by, from, to, ok)
		}
		if b := h.Series("val_loss", c.by, math.Inf(-1), math.Inf(1), 10); len(b) != 2 || b[0].X != 0 || b[1].X != c.to || b[1].Last != 2 {
			t.Errorf("%v: %+v", c.by, b)
		}
		if b := h.Series("val_loss", c.by, c.to/10, c.to/2, 10); len(b) != 0 {
			t.Errorf("%v: in between lie %+v", c.by, b)
		}
	}
	if b := h.Series("accuracy", BySteps, 0, 9, 10); b != nil {
		t.Errorf("a series that there is none of: %+v", b)
	}
	empty := made(t, t.TempDir(), "")
	if _, _, ok := empty.Span(BySteps); ok || empty.Series("loss", BySteps, 0, 9, 10) != nil || Axis(7).String() != "Axis(7)" {
		t.Error("an empty file has a span, or curves")
	}
}

// TestTogether: curves are asked for while the file is read anew.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	fsys := openFolder(t, dir)
	defer fsys.Close() //nolint:errcheck // of a test
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := open(fsys, file, 100)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for h.Len() < 300 {
				for _, name := range h.Names() {
					h.Series(name, BySteps, 0, 1000, 10)
				}
				if last, ok := h.Last(); ok && last.Loss == nil {
					t.Error("half a row")
				}
			}
		})
	}
	for i := range 300 {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(f, `{"step":%d,"loss":%d}`+"\n", i, i)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := h.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
}
