package data

import "fmt"

// Masked is the target of a position that takes no part in the loss.
const Masked = -1

// Window is Len tokens starting at position Off; their targets extend one further.
type Window struct {
	Off int64
	Len int
}

// CheckLength returns ErrTooShort unless a corpus fills one window of context tokens and the target
// of the last one.
func CheckLength(corpusLen int64, context int) error {
	if context < 1 {
		return fmt.Errorf("the context is %d tokens: it must be at least 1", context)
	}
	if corpusLen <= int64(context) {
		return fmt.Errorf("%w: there are %d tokens, but a window needs %d (a context of %d and one target): use more text or a context of at most %d",
			ErrTooShort, corpusLen, context+1, context, max(corpusLen-1, 0))
	}
	return nil
}

// ValWindows returns the starts of the validation windows: want of them, always the same, spread
// evenly. No two share a target, and none crosses the end of a piece if any fit into the pieces. A
// short corpus has fewer, but at least one; otherwise the error is ErrTooShort.
func ValWindows(c Corpus, context, want int) ([]int64, error) {
	if err := CheckLength(c.Len(), context); err != nil {
		return nil, err
	}
	pieces := Pieces(c)
	if fits := windowsIn(pieces, context); fits == 0 {
		pieces = []Piece{{0, c.Len()}} // each is shorter than a window, so windows cross their ends
	}
	fits := windowsIn(pieces, context)
	n := max(min(int64(want), fits), 1)
	if len(pieces) == 1 {
		return spread(pieces[0], n), nil
	}
	offs := make([]int64, 0, n)
	before := int64(0) // number of windows in the pieces before this one
	for _, p := range pieces {
		in := windowsIn([]Piece{p}, context)
		// This piece's windows among n of all, spread evenly.
		mine := share(n, before+in, fits) - share(n, before, fits)
		if mine > 0 {
			offs = append(offs, spread(p, mine)...)
		}
		before += in
	}
	return offs, nil
}

// windowsIn returns the number of windows that fit into pieces without crossing an end.
func windowsIn(pieces []Piece, context int) int64 {
	var n int64
	for _, p := range pieces {
		n += max(p.Len-1, 0) / int64(context)
	}
	return n
}

// spread returns n evenly spaced places in a piece, at least context apart, at each of which a
// window of context targets fits.
func spread(p Piece, n int64) []int64 {
	offs := make([]int64, n)
	for i := range n {
		offs[i] = p.Off + share(p.Len-1, i, n)
	}
	return offs
}

// Sequential returns windows that have every token of a corpus, except the first of each piece, as
// a target once, in order. All have context tokens, except the last of a piece, which may be
// shorter. A piece of less than two tokens has none.
func Sequential(c Corpus, context int) []Window {
	if context < 1 {
		return nil
	}
	var windows []Window
	for _, p := range Pieces(c) {
		targets := p.Len - 1
		for at := int64(0); at < targets; at += int64(context) {
			windows = append(windows, Window{p.Off + at, int(min(int64(context), targets-at))})
		}
	}
	return windows
}

// Fill reads the window at off: len(tokens) tokens and the targets that follow them. After the end
// of the corpus tokens are 0 and targets Masked.
func Fill(c Corpus, off int64, tokens, targets []int32) error {
	if len(tokens) != len(targets) {
		return fmt.Errorf("a window has %d tokens but %d targets", len(tokens), len(targets))
	}
	if off < 0 || off > c.Len() {
		return fmt.Errorf("a window cannot start at position %d of %d ids", off, c.Len())
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
