package data

import "github.com/troupe-ml/troupe/internal/base/rng"

// Epochs says where each training window begins. An epoch is a pass over the corpus:
// windows of context tokens tile it, one beginning where the one before ends, and each
// is visited once. Where the first begins is drawn for each epoch, so that the text is
// not cut at the same places every time, and so is the order of the windows.
//
// Both are functions of (seed, epoch) alone: the window of a sequence follows from the
// sequence's number in the run, and a position has no state that could be lost.
type Epochs struct {
	seed    uint64
	context int64
	windows uint64 // in each epoch
	starts  uint64 // places where the first window may begin
}

// NewEpochs lays the epochs of a corpus out, which must pass CheckLength: windows of
// context tokens, and the target of the last.
func NewEpochs(seed uint64, corpusLen int64, context int) (Epochs, error) {
	if err := CheckLength(corpusLen, context); err != nil {
		return Epochs{}, err
	}
	// All epochs have the same number of windows, so that a sequence's epoch is a
	// division: as many as fit wherever among context places the first begins. It may
	// begin as far behind them as the windows leave room for, or the last of the text
	// would be in no epoch.
	targets, t := corpusLen-1, int64(context)
	windows := max((targets-(t-1))/t, 1)
	starts := targets - windows*t + 1
	return Epochs{seed: seed, context: t, windows: uint64(windows), starts: uint64(starts)}, nil
}

// Windows is the number of windows in an epoch.
func (e Epochs) Windows() int64 { return int64(e.windows) }

// Window returns the epoch of a sequence of the run, both counted from 0, and where the
// sequence's window begins.
func (e Epochs) Window(sequence int64) (epoch, off int64) {
	number, place := uint64(sequence)/e.windows, uint64(sequence)%e.windows
	first := rng.Intn(rng.NewKey(e.seed, rng.StringStream("epoch start")), number, 0, e.starts)
	window := rng.Permute(rng.NewKey(e.seed, rng.StringStream("epoch order")), number, place, e.windows)
	return int64(number), int64(first) + int64(window)*e.context
}
