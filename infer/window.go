package infer

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/run/trained"
)

// GenerateReport says what was written, and what of the text the model did not see.
type GenerateReport struct {
	Context      int `json:"context"`       // tokens that the model sees at most
	PromptTokens int `json:"prompt_tokens"` // of the whole prompt
	// PromptCut counts the tokens at the beginning of the prompt that did not fit the context and
	// that the model has not seen.
	PromptCut int `json:"prompt_cut"`
	Tokens    int `json:"tokens"` // written; the token that ends a text is not counted
	// WindowMoves counts how often the context was full: the model then continued from the last half of it.
	WindowMoves int `json:"window_moves"`
}

// positions is how many tokens of a text the model sees: all that it has positions for, unless less is asked for.
func positions(m *trained.Model, asked int) (int, error) {
	has := m.Shape.Config.Positions()
	switch {
	case asked == 0:
		return has, nil
	case asked < 1 || asked > has:
		return 0, fmt.Errorf("%w: a context of %d tokens; the model of %s has %d positions: give 1 to %d, or 0 for all", ErrOptions, asked,
			m.From(), has, has)
	}
	return asked, nil
}

// textWindow is the part of a text that the model sees. It reports what it does not see.
type textWindow struct {
	size, half int // half: what is kept when the window is full
	positions  int // of the model
	warn       func(string)
	report     GenerateReport
}

func newTextWindow(size, positions int, o GenerateOptions) *textWindow {
	w := &textWindow{size: size, half: max(1, size/2), positions: positions, warn: o.Warn}
	if w.warn == nil {
		w.warn = func(string) {}
	}
	w.report.Context = size
	return w
}

// begin is the part of a prompt that fits.
func (w *textWindow) begin(prompt []int32) []int32 {
	w.report.PromptTokens, w.report.PromptCut = len(prompt), max(0, len(prompt)-w.size)
	if w.report.PromptCut > 0 {
		w.warn(fmt.Sprintf("the prompt has %d tokens and the context %d: the model does not see the first %d of them. Shorten the prompt%s",
			len(prompt), w.size, w.report.PromptCut, w.more()))
	}
	return tail(prompt, w.size)
}

// move is where the text continues from when the window is full.
func (w *textWindow) move(sequence []int32) []int32 {
	if w.report.WindowMoves++; w.report.WindowMoves == 1 {
		w.warn(fmt.Sprintf("the context of %d tokens is full (tokens written: %d): the model continues from the last %d and no longer sees what stands before them. Write fewer tokens%s", w.size, w.report.Tokens, w.half, w.more()))
	}
	return tail(sequence, w.half)
}

// more is the remedy where the model has more positions than are used.
func (w *textWindow) more() string {
	if w.size < w.positions {
		return fmt.Sprintf(", or raise the context: the model has %d positions", w.positions)
	}
	return "; the model has no more positions"
}
