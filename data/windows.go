package data

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/rng"
)

// Masked is the target of a position that takes no part in the loss.
const Masked = -1

// Sample is one window: Targets[i] is the token that follows Tokens[i], or
// Masked.
type Sample struct{ Tokens, Targets []int32 }

// Window is Len tokens from position Off on; their targets reach one further.
type Window struct {
	Off int64
	Len int
}

// CheckLength returns an error, ErrTooShort, unless a corpus fills one window of
// context tokens and the target of the last.
func CheckLength(corpusLen int64, context int) error {
	if context < 1 {
		return fmt.Errorf("the context must be at least 1 token, not %d", context)
	}
	if corpusLen <= int64(context) {
		return fmt.Errorf("%w: there are %d tokens, but a window takes %d (a context of %d and one target): use more text or a context of at most %d",
			ErrTooShort, corpusLen, context+1, context, max(corpusLen-1, 0))
	}
	return nil
}

// TrainWindow returns where the training window with an index in a step begins:
// drawn at random, with replacement, as a function of its arguments alone. The
// corpus must have passed CheckLength.
func TrainWindow(seed uint64, step, index int, corpusLen int64, context int) int64 {
	key := rng.NewKey(seed, rng.StringStream("training windows"))
	starts := corpusLen - int64(context)
	return int64(rng.Intn(key, uint64(step), uint64(index), uint64(max(starts, 1))))
}

// ValWindows returns where the validation windows begin: want of them, always
// the same, spread evenly, no two with a target in common. A short corpus has
// fewer, but at least one, or the error is ErrTooShort.
func ValWindows(corpusLen int64, context, want int) ([]int64, error) {
	if err := CheckLength(corpusLen, context); err != nil {
		return nil, err
	}
	targets := corpusLen - 1
	n := max(min(int64(want), targets/int64(context)), 1)
	offs := make([]int64, n)
	for i := range n {
		// i·targets/n without its overflow; at least context apart, because
		// n·context ≤ targets.
		offs[i] = i*(targets/n) + i*(targets%n)/n
	}
	return offs, nil
}

// Sequential returns windows that have every token but the first as a target
// once, in order: all of context tokens, but the last, which may be shorter. A
// corpus of less than two tokens has none.
func Sequential(corpusLen int64, context int) []Window {
	if corpusLen < 2 || context < 1 {
		return nil
	}
	targets := corpusLen - 1
	windows := make([]Window, 0, (targets-1)/int64(context)+1)
	for off := int64(0); off < targets; off += int64(context) {
		windows = append(windows, Window{off, int(min(int64(context), targets-off))})
	}
	return windows
}

// Fill reads the window at off: len(tokens) tokens and the targets that follow
// them. Behind the end of the corpus tokens are 0 and targets Masked.
func Fill(c Corpus, off int64, tokens, targets []int32) error {
	if len(tokens) != len(targets) {
		return fmt.Errorf("a window has %d tokens but %d targets", len(tokens), len(targets))
	}
	if off < 0 || off > c.Len() {
		return fmt.Errorf("a window at position %d of %d ids", off, c.Len())
	}
	left := c.Len() - off
	n := int(min(int64(len(tokens)), left))
	if err := c.Read(tokens[:n], off); err != nil {
		return err
	}
	clear(tokens[n:])
	for i := range targets {
		targets[i] = Masked
	}
	if n == 0 {
		return nil
	}
	copy(targets, tokens[1:n])
	if int64(n) < left {
		return c.Read(targets[n-1:n], off+int64(n))
	}
	return nil
}
