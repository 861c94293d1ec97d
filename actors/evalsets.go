package actors

import "github.com/troupe-ml/troupe/stages"

// EvalSet is a validation set with a loss of its own.
type EvalSet struct {
	Name string
	Data Source // its validation windows; nothing else of it is read
}

// microbatches returns how many microbatches a validation has for the set. Only the last one may hold fewer windows.
func (s EvalSet) microbatches(size int) int { return (s.Data.EvalWindows() + size - 1) / size }

// EvalMicrobatches returns how many microbatches of the given size a validation has.
func EvalMicrobatches(size int, data Source, sets []EvalSet) (n int) {
	for _, s := range append([]EvalSet{{Data: data}}, sets...) {
		n += s.microbatches(size)
	}
	return n
}

// evalSets returns the validation sets in the order of their microbatches: that of Data, if it has windows, then the further ones.
func (s *Spec) evalSets() []EvalSet {
	if s.Data.EvalWindows() == 0 && len(s.EvalSets) > 0 {
		return s.EvalSets
	}
	return append([]EvalSet{{Data: s.Data}}, s.EvalSets...)
}

// evalWindows returns the source of a validation's microbatch, with its first window there and the number of its windows; 0: the
// microbatch is blank (see checkWindows).
func (s *Spec) evalWindows(microbatch int) (data Source, first, count int) {
	for _, set := range s.evalSets() {
		n := set.microbatches(s.MicrobatchSize)
		if microbatch < n {
			first = microbatch * s.MicrobatchSize
			return set.Data, first, min(s.MicrobatchSize, set.Data.EvalWindows()-first)
		}
		microbatch -= n
	}
	return nil, 0, 0
}

// evalLosses returns the loss of a validation that decides which weights are the best, and those of the further sets by name.
func (a *schedulerActor) evalLosses() (deciding float64, sets map[string]float64) {
	if len(a.spec.EvalSets) == 0 {
		return a.losses.Loss(), nil
	}
	sets = make(map[string]float64, len(a.spec.EvalSets))
	first := 0
	for i, set := range a.spec.evalSets() {
		end := first + set.microbatches(a.spec.MicrobatchSize)
		loss := a.losses.Between(first, end).Loss()
		if i == 0 {
			deciding = loss
		}
		if set.Name != "" {
			sets[set.Name] = loss
		}
		first = end
	}
	return deciding, sets
}

// decidingLosses returns the reports of the set that decides which weights are the best.
func (a *schedulerActor) decidingLosses() *stages.Accumulator {
	if len(a.spec.EvalSets) == 0 {
		return a.losses
	}
	return a.losses.Between(0, a.spec.evalSets()[0].microbatches(a.spec.MicrobatchSize))
}
