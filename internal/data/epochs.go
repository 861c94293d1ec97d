package data

import "github.com/troupe-ml/troupe/internal/base/rng"

// Epochs determines where each training window starts. An epoch is one pass over the corpus:
// windows of context tokens, one after the other, each visited once. The start of the first window
// is drawn for each epoch, so that the text is not cut at the same places every time. So is the
// order of the windows.
//
// Both are functions of (seed, epoch) alone. The window of a sequence follows from the sequence's
// number in the run, so a position has no state that could be lost.
type Epochs struct {
	seed    uint64
	context int64
	windows uint64 // windows in each epoch
	starts  uint64 // number of places where the first window may start
}

// NewEpochs lays out the epochs of a corpus, which must pass CheckLength, for windows of context
// tokens and the target of the last token.
func NewEpochs(seed uint64, corpusLen int64, context int) (Epochs, error) {
	if err := CheckLength(corpusLen, context); err != nil {
		return Epochs{}, err
	}
	// All epochs have the same number of windows, so that a division gives a sequence's epoch: as
	// many as fit for any start of the first window among context places. It may start as late as
	// the windows leave room for; otherwise the end of the text would be in no epoch.
	targets, t := corpusLen-1, int64(context)
	windows := max((targets-(t-1))/t, 1)
	starts := targets - windows*t + 1
	return Epochs{seed: seed, context: t, windows: uint64(windows), starts: uint64(starts)}, nil
}

// Windows returns the number of windows in an epoch.
func (e Epochs) Windows() int64 { return int64(e.windows) }

// Window returns the epoch of a sequence of the run, and the start of its window. Sequences and
// epochs are counted from 0.
func (e Epochs) Window(sequence int64) (epoch, off int64) {
	number, place := uint64(sequence)/e.windows, uint64(sequence)%e.windows
	first := rng.Intn(rng.NewKey(e.seed, rng.StringStream("epoch start")), number, 0, e.starts)
	window := rng.Permute(rng.NewKey(e.seed, rng.StringStream("epoch order")), number, place, e.windows)
	return int64(number), int64(first) + int64(window)*e.context
}
