package history

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/troupe-ml/troupe/telemetry"
)

// table is what rows say, by columns. Its steps ascend strictly.
type table struct {
	steps   []int
	tokens  []int64   // the most that a row up to this one has
	seconds []float64 // up to the end of this one; only of the whole: see join
	skipped []uint32  // rows whose update was not applied
	figures [limitFigures]series
	metrics [2]map[string]*series // of the step, and of the validation
}

func newTable() *table {
	return &table{metrics: [2]map[string]*series{{}, {}}}
}

// add appends a row. One of a step that is there takes the place of that one and of all behind it.
func (t *table) add(r *row) error {
	if n := len(t.steps); n > 0 && r.step <= t.steps[n-1] {
		t.cut(r.step)
	}
	n := uint32(len(t.steps))
	t.steps = append(t.steps, r.step)
	tokens := r.tokens
	if n > 0 {
		tokens = max(tokens, t.tokens[n-1])
	}
	t.tokens = append(t.tokens, tokens)
	if r.skipped {
		t.skipped = append(t.skipped, n)
	}
	for has := r.has; has != 0; has &= has - 1 {
		k := bits.TrailingZeros32(has)
		t.figures[k].add(n, r.figures[k])
	}
	for _, m := range r.metrics {
		of := t.metrics[0]
		if m.val {
			of = t.metrics[1]
		}
		s := of[string(m.name)]
		if s == nil {
			s = &series{}
			of[string(m.name)] = s
			if err := t.checkMetrics(); err != nil {
				return err
			}
		}
		s.add(n, m.value)
	}
	return nil
}

// cut drops the rows of a step and of later ones.
func (t *table) cut(step int) {
	n := sort.SearchInts(t.steps, step)
	t.steps, t.tokens = t.steps[:n], t.tokens[:n]
	t.seconds = t.seconds[:min(n, len(t.seconds))]
	t.skipped = t.skipped[:sort.Search(len(t.skipped), func(i int) bool { return int(t.skipped[i]) >= n })]
	for s := range t.all {
		s.cut(n)
	}
}

// all goes through the series.
func (t *table) all(yield func(*series) bool) {
	for k := range t.figures {
		if !yield(&t.figures[k]) {
			return
		}
	}
	for _, of := range t.metrics {
		for _, s := range of {
			if !yield(s) {
				return
			}
		}
	}
}

func (t *table) checkMetrics() error {
	if n := len(t.metrics[0]) + len(t.metrics[1]); n > LimitMetrics {
		return fmt.Errorf("with it the file has %d names of metrics, at most %d are read", n, LimitMetrics)
	}
	return nil
}

// join appends the rows of another table, as add would one by one. It is the whole whose seconds
// are kept: then their sums are those of one row after the other, however the file was cut.
func (t *table) join(o *table) error {
	if len(o.steps) == 0 {
		return nil
	}
	if n := len(t.steps); n > 0 && o.steps[0] <= t.steps[n-1] {
		t.cut(o.steps[0]) // the least: a row of a lesser one would have cut it
	}
	n := len(t.steps)
	if n+len(o.steps) > LimitRows {
		return fmt.Errorf("it has more than %d rows, the most that are read", LimitRows)
	}
	base, tokens, seconds := uint32(n), int64(math.MinInt64), 0.0
	if n > 0 {
		tokens, seconds = t.tokens[n-1], t.seconds[n-1]
	}
	t.steps = append(t.steps, o.steps...)
	for _, m := range o.tokens {
		tokens = max(tokens, m)
		t.tokens = append(t.tokens, tokens)
	}
	took, next := &o.figures[keyStepMS], 0
	for i := range o.steps {
		if next < len(took.values) && int(took.row(next)) == i {
			if ms := took.values[next]; ms > 0 {
				seconds += ms / 1000
			}
			next++
		}
		t.seconds = append(t.seconds, seconds)
	}
	for _, row := range o.skipped {
		t.skipped = append(t.skipped, base+row)
	}
	for k := range t.figures {
		t.figures[k].join(&o.figures[k], base)
	}
	for k, of := range o.metrics {
		for name, s := range of {
			own := t.metrics[k][name]
			if own == nil {
				own = &series{}
				t.metrics[k][name] = own
			}
			own.join(s, base)
		}
	}
	return t.checkMetrics()
}

// sparse says that a row has a figure that few steps have.
func (t *table) sparse() bool {
	for k := range telemetry.Figures {
		if telemetry.Figures[k].Sparse && len(t.figures[k].values) > 0 {
			return true
		}
	}
	return false
}

// thinned is a table of the steps that a number divides, and of those with a figure that few steps have.
func (t *table) thinned(every int) *table {
	n := len(t.steps)
	kept := make([]bool, n)
	for row, step := range t.steps {
		kept[row] = step%every == 0
	}
	for k := range telemetry.Figures {
		if s := &t.figures[k]; telemetry.Figures[k].Sparse {
			for i := range s.values {
				kept[s.row(i)] = kept[s.row(i)] || len(s.values) <= n/2 || i%2 == 0
			}
		}
	}
	out, place := newTable(), make([]uint32, n)
	for row, keep := range kept {
		if keep {
			place[row] = uint32(len(out.steps))
			out.steps, out.tokens = append(out.steps, t.steps[row]), append(out.tokens, t.tokens[row])
			out.seconds = append(out.seconds, t.seconds[row])
		}
	}
	for _, row := range t.skipped {
		if kept[row] {
			out.skipped = append(out.skipped, place[row])
		}
	}
	thin := func(to, from *series) {
		for i, v := range from.values {
			if row := from.row(i); kept[row] {
				to.add(place[row], v)
			}
		}
		to.build()
	}
	for k := range t.figures {
		thin(&out.figures[k], &t.figures[k])
	}
	for k, of := range t.metrics {
		for name, s := range of {
			out.metrics[k][name] = &series{}
			thin(out.metrics[k][name], s)
		}
	}
	return out
}

// expect makes room for rows that have the usual figures.
func (t *table) expect(rows int) {
	t.steps, t.tokens = make([]int, 0, rows), make([]int64, 0, rows)
	for k := range telemetry.Figures {
		if !telemetry.Figures[k].Sparse {
			t.figures[k].values = make([]float64, 0, rows)
		}
	}
}

// grow makes room for rows like those that are there.
func (t *table) grow(rows int) {
	t.steps, t.tokens, t.seconds = slices.Grow(t.steps, rows), slices.Grow(t.tokens, rows), slices.Grow(t.seconds, rows)
	for s := range t.all {
		if 2*len(s.values) > len(t.steps) {
			s.grow(rows)
		}
	}
}
