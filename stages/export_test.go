package stages

// Objective is what a chunk's gradient is the gradient of, at a loss scale of 1: the
// main loss and the weighted losses of multi-token prediction.
func (s *Stage) Objective(chunk, index int) float64 {
	_, f := s.find(chunk, index)
	st := f.states[len(f.states)-1].(*headState)
	sum, _ := st.sum(0)
	c := s.model.Config
	for k := 1; k <= c.MTPLayers; k++ {
		loss, _ := st.sum(k)
		sum += c.MTPWeight / float64(c.MTPLayers) * loss
	}
	return sum
}

// DepthLoss is the loss of one depth of multi-token prediction, and its targets.
func (s *Stage) DepthLoss(chunk, index, depth int) (sum, targets float64) {
	_, f := s.find(chunk, index)
	return f.states[len(f.states)-1].(*headState).sum(depth)
}
