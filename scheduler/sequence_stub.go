package scheduler

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
