package infer

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/run/trained"
)

// GenerateReport counts the tokens of a generated text, and those that the model did not see.
type GenerateReport struct {
	Context      int `json:"context"`       // the largest number of tokens that the model sees
	PromptTokens int `json:"prompt_tokens"` // of the whole prompt
	// PromptCut is the number of tokens at the beginning of the prompt that did not fit the context. The
	// model has not seen them.
	PromptCut int `json:"prompt_cut"`
	Tokens    int `json:"tokens"` // generated tokens, without the one that ends the text
	// WindowMoves is how often the context was full. The model then continued from its last half.
	WindowMoves int `json:"window_moves"`
	// Finish says why the text ended: FinishStop or FinishLength; "": an error ended it.
	Finish string `json:"finish"`
}

// Why a text ended.
const (
	FinishStop   = "stop"   // a token of the model, or a stop string
	FinishLength = "length" // the largest number of tokens, or with Fit the context
)

// positions is the number of tokens that the model sees: all its positions, unless fewer are requested.
func positions(m *trained.Model, asked int) (int, error) {
	has := m.Shape.Config.Positions()
	switch {
	case asked == 0:
		return has, nil
	case asked < 1 || asked > has:
		return 0, fmt.Errorf("%w: context is %d tokens, but the model of %s has %d positions; use 1 to %d, or 0 for all", ErrOptions, asked,
			m.From(), has, has)
	}
	return asked, nil
}

// textWindow is the part of a text that the model sees. It reports the rest.
type textWindow struct {
	size, half int // half: tokens to keep when the window is full
	positions  int // of the model
	warn       func(string)
	report     GenerateReport
}

func newTextWindow(size, positions int, o TextOptions) *textWindow {
	w := &textWindow{size: size, half: max(1, size/2), positions: positions, warn: o.Warn}
	if w.warn == nil {
		w.warn = func(string) {}
	}
	w.report.Context = size
	return w
}

// begin returns the part of a prompt that fits.
func (w *textWindow) begin(prompt []int32) []int32 {
	w.report.PromptTokens, w.report.PromptCut = len(prompt), max(0, len(prompt)-w.size)
	if w.report.PromptCut > 0 {
		w.warn(fmt.Sprintf("the prompt has %d tokens, but the context has %d: the model does not see the first %d tokens. Shorten the prompt%s",
			len(prompt), w.size, w.report.PromptCut, w.more()))
	}
	return tail(prompt, w.size)
}

// move returns the tokens from which the text continues when the window is full.
func (w *textWindow) move(sequence []int32) []int32 {
	if w.report.WindowMoves++; w.report.WindowMoves == 1 {
		w.warn(fmt.Sprintf("the context of %d tokens is full after %s: the model continues from the last %d and no longer sees the tokens before them. Generate fewer tokens%s", w.size, words.Plural(w.report.Tokens, "generated token"), w.half, w.more()))
	}
	return tail(sequence, w.half)
}

// more is the end of a warning: whether the context can be raised.
func (w *textWindow) more() string {
	if w.size < w.positions {
		return fmt.Sprintf(", or raise the context: the model has %d positions", w.positions)
	}
	return "; the model has no more positions"
}
