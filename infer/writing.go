package infer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// writing is a text in progress: which tokens the model reads next, and which token its logits become. It knows no
// decoder.
type writing struct {
	o        TextOptions
	model    *trained.Model
	window   *textWindow
	pick     *sampler
	out      textWriter
	ends     []int32 // tokens that end the text
	sequence []int32 // the last tokens of the prompt and the text, at most a context
	next     []int32 // those that the model has not read yet
	prompt   int     // tokens of the prompt that the model reads
	tokens   int     // most tokens to generate
	ended    bool
}

// newWriting starts a text. It encodes the prompt.
func newWriting(m *trained.Model, o TextOptions, emit func(text []byte) error) (*writing, error) {
	if !m.Shape.Config.Language() {
		return nil, fmt.Errorf("%w: a model of family %q does not generate text", ErrOptions, m.Shape.Config.Family)
	}
	if m.Tokenizer == nil {
		return nil, fmt.Errorf("%w: the model of %s has no supported tokenizer, which is needed to encode and decode text", ErrOptions,
			m.From())
	}
	said, err := m.Text()
	if err != nil {
		return nil, &SetupError{Err: err}
	}
	size, err := positions(m, o.Context)
	if err != nil {
		return nil, err
	}
	prompt, err := encodePrompt(m, said, o, func(bytes int) error {
		if least := tokenizer.LeastIDs(m.Tokenizer, bytes); o.Fit && least > size {
			return fmt.Errorf("%w: the prompt has at least %d tokens, but the context has %d; shorten the prompt", ErrContext, least, size)
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrContext):
		return nil, err
	case err != nil:
		return nil, &SetupError{Err: fmt.Errorf("encode the prompt: %w", err)}
	}
	if o.Fit && len(prompt) > size {
		return nil, fmt.Errorf("%w: the prompt has %d tokens, but the context has %d; shorten the prompt", ErrContext, len(prompt), size)
	}
	w := &writing{o: o, model: m, window: newTextWindow(size, m.Shape.Config.Positions(), o), pick: newSampler(o, m.Tokenizer.Vocab()),
		out:    textWriter{text: tokenizer.NewTextDecoder(m.Tokenizer), stop: newStopper(o.Stop), emit: emit},
		ends:   said.Stops(o.Messages, o.chat()),
		tokens: o.Tokens}
	if o.Fit {
		w.tokens = min(o.Tokens, size-len(prompt)+1)
	}
	w.pick.seen(prompt...)
	w.next = w.window.begin(prompt)
	w.prompt, w.sequence = len(w.next), append([]int32{}, w.next...)
	return w, nil
}

// room is the number of positions that the text can have in a cache.
func (w *writing) room() int { return w.prompt + min(w.tokens, w.window.size-w.prompt) }

// longest is the largest number of tokens that the model reads at once.
func (w *writing) longest() int {
	n := w.prompt
	if w.tokens > w.window.size-w.prompt+1 { // the context will be full
		n = max(n, w.window.half)
	}
	return w.part(n)
}

// part is how many of the next n tokens the model reads at once.
func (w *writing) part(n int) int {
	if w.model.Shape.Config.RopeScaling.Whole(n) {
		return n
	}
	return min(n, limitFeed)
}

// feed returns the tokens that the model reads next, after the given number of positions. again says that it has to forget
// those first.
func (w *writing) feed(used int) (tokens []int32, again bool) {
	if used+len(w.next) > w.window.size {
		w.next, again = w.window.move(w.sequence), true
	}
	return w.next[:w.part(len(w.next))], again
}

// read notes that the model has read tokens. It reports whether its logits are those of the next token.
func (w *writing) read(n int) bool {
	w.next = w.next[n:]
	return len(w.next) == 0
}

// take continues the text with a token drawn from the logits.
func (w *writing) take(logits []float32) error {
	r := &w.window.report
	if err := w.pick.check(logits); err != nil {
		return fmt.Errorf("token %d of %d: %w: %s", r.Tokens+1, w.tokens, err, w.model.Suspicion())
	}
	id := w.pick.choose(logits, uint64(r.Tokens))
	if !w.o.IgnoreEnd && slices.Contains(w.ends, id) {
		return w.end(FinishStop)
	}
	r.Tokens++
	w.pick.seen(id)
	w.sequence = append(tail(w.sequence, w.window.size), id)
	w.next = w.sequence[len(w.sequence)-1:]
	stopped, err := w.out.write(w.out.text.Decode(id))
	switch {
	case err != nil:
		return err
	case stopped:
		w.ended, r.Finish = true, FinishStop
	case r.Tokens >= w.tokens:
		return w.end(FinishLength)
	}
	return nil
}

// end ends the text, with what was held back of it.
func (w *writing) end(why string) error {
	stopped, err := w.out.end()
	if stopped {
		why = FinishStop
	}
	w.ended, w.window.report.Finish = true, why
	return err
}

// textWriter passes on the part of a text before the first stop string.
type textWriter struct {
	text *tokenizer.StreamDecoder
	stop *stopper
	emit func(text []byte) error
}

func (w *textWriter) write(b []byte) (stopped bool, err error) {
	if b, stopped = w.stop.take(b); len(b) > 0 {
		err = w.emit(b)
	}
	return stopped, err
}

// end writes what was held back.
func (w *textWriter) end() (stopped bool, err error) {
	if stopped, err := w.write(w.text.Flush()); stopped || err != nil {
		return stopped, err
	}
	if b := w.stop.rest(); len(b) > 0 {
		return false, w.emit(b)
	}
	return false, nil
}
