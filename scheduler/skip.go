package scheduler

// Skip is an edge between chunks that are not neighbours.
type Skip struct{ From, To int }

// SetSkips is a stand-in.
func (t *Table) SetSkips(s []Skip) error { t.Skips = s; return nil }

// BalancedSequence is a stand-in.
func BalancedSequence(symbols string, costs []float64, spec LayoutSpec, chunks int) (*Layout, error) {
	l := &Layout{}
	n := len(symbols)
	for c := range chunks {
		var s []Symbol
		for _, r := range symbols[c*n/chunks : (c+1)*n/chunks] {
			s = append(s, Symbol(r))
		}
		l.Chunks = append(l.Chunks, s)
	}
	return l, nil
}
