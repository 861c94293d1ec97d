package history

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/troupe-ml/troupe/telemetry"
)

// table holds rows as columns. Its steps increase strictly.
type table struct {
	steps   []int
	tokens  []int64   // maximum of the rows so far
	seconds []float64 // sum up to the end of the row; only in the whole table, see join
	skipped []uint32  // rows whose step skipped its update
	figures [limitFigures]series
	metrics [len(groups)]map[string]*series
}

func newTable() *table {
	return &table{metrics: [len(groups)]map[string]*series{{}, {}, {}}}
}

// add appends a row. A row of a present step replaces that row and all rows after it.
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
		of := t.metrics[m.group]
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

// cut drops the rows of a step and of later steps.
func (t *table) cut(step int) {
	n := sort.SearchInts(t.steps, step)
	t.steps, t.tokens = t.steps[:n], t.tokens[:n]
	t.seconds = t.seconds[:min(n, len(t.seconds))]
	t.skipped = t.skipped[:sort.Search(len(t.skipped), func(i int) bool { return int(t.skipped[i]) >= n })]
	for s := range t.all {
		s.cut(n)
	}
}

// all iterates over the series.
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
	n := 0
	for _, of := range t.metrics {
		n += len(of)
	}
	if n > LimitMetrics {
		return fmt.Errorf("the file has %d names of metrics, the limit is %d", n, LimitMetrics)
	}
	return nil
}

// join appends the rows of another table, as add would one by one. Only join sums the seconds, row by row, so that
// the sums do not depend on the blocks.
func (t *table) join(o *table) error {
	if len(o.steps) == 0 {
		return nil
	}
	if n := len(t.steps); n > 0 && o.steps[0] <= t.steps[n-1] {
		t.cut(o.steps[0]) // the smallest step: a row of a smaller one would have cut it
	}
	n := len(t.steps)
	if n+len(o.steps) > LimitRows {
		return fmt.Errorf("the file has more than %d rows, the limit", LimitRows)
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

// sparse reports whether a row has a sparse figure.
func (t *table) sparse() bool {
	for k := range telemetry.Figures {
		if telemetry.Figures[k].Sparse && len(t.figures[k].values) > 0 {
			return true
		}
	}
	return false
}

// thinned returns a table of the steps that a number divides, and of those with a sparse figure.
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

// expect reserves memory for rows with the usual figures.
func (t *table) expect(rows int) {
	t.steps, t.tokens = make([]int, 0, rows), make([]int64, 0, rows)
	for k := range telemetry.Figures {
		if !telemetry.Figures[k].Sparse {
			t.figures[k].values = make([]float64, 0, rows)
		}
	}
}

// grow reserves memory for rows like the present ones.
func (t *table) grow(rows int) {
	t.steps, t.tokens, t.seconds = slices.Grow(t.steps, rows), slices.Grow(t.tokens, rows), slices.Grow(t.seconds, rows)
	for s := range t.all {
		if 2*len(s.values) > len(t.steps) {
			s.grow(rows)
		}
	}
}
