package infer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// GenerateOptions say what to write.
type GenerateOptions struct {
	ModelOptions
	Prompt      string  // "": a line break, where the vocabulary has one
	Tokens      int     // to write
	Temperature float64 // 0: always the most likely token
	TopK        int     // choose among the k most likely; 0: among all
	// TopP chooses among the most likely tokens that have this much of the probability together;
	// 0: among all.
	TopP float64
	// MinP leaves out tokens less likely than this share of the most likely one's probability.
	MinP float64
	// RepetitionPenalty divides positive logits of tokens that stand in the text already, and multiplies
	// negative ones; 0 or 1: none (Keskar et al. 2019).
	RepetitionPenalty float64
	Seed              uint64
	// Stop are texts at which the text ends; they are not part of it.
	Stop []string
	// IgnoreEnd goes on where the model ends its text (eos_token_id).
	IgnoreEnd bool
	// Context is how many tokens the model sees at most, the prompt's among them, up to its positions;
	// 0: all its positions, also where a run trained it with fewer.
	Context int
	// Messages are a conversation to answer, which the model's chat template renders; Prompt must be
	// empty then.
	Messages []Message
	// Tools is a JSON array of functions that the answer may call, for the chat template; nil: none.
	Tools json.RawMessage
	// TemplateVars are variables for the template, such as "enable_thinking".
	TemplateVars map[string]any
	// Warn gets a sentence when the prompt is cut, or when the context is full for the first time, before
	// the text that follows from it; nil: nothing is said.
	Warn func(warning string)
	// Report is filled in when the text ends; nil: it is not asked for.
	Report *GenerateReport
}

// Message is one of a conversation.
type Message = chat.Message

func (o GenerateOptions) check() error {
	switch {
	case o.Tokens < 0:
		return fmt.Errorf("%w: %d tokens; give 0 or more", ErrOptions, o.Tokens)
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0):
		return fmt.Errorf("%w: a temperature of %g; give 0 or more", ErrOptions, o.Temperature)
	case o.Context < 0:
		return fmt.Errorf("%w: a context of %d tokens; give 1 or more, or 0 for all the model's positions", ErrOptions, o.Context)
	case o.TopK < 0:
		return fmt.Errorf("%w: top-k of %d; give 0 (all) or more", ErrOptions, o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return fmt.Errorf("%w: top-p of %g; give 0 (all) to 1", ErrOptions, o.TopP)
	case !(o.MinP >= 0 && o.MinP < 1):
		return fmt.Errorf("%w: min-p of %g; give 0 or more, but less than 1", ErrOptions, o.MinP)
	case !(o.RepetitionPenalty >= 0) || math.IsInf(o.RepetitionPenalty, 0):
		return fmt.Errorf("%w: a repetition penalty of %g; give more than 0, or 0 for none", ErrOptions, o.RepetitionPenalty)
	case slices.Contains(o.Stop, ""):
		return fmt.Errorf("%w: an empty text to stop at", ErrOptions)
	case len(o.Messages) > 0 && o.Prompt != "":
		return fmt.Errorf("%w: both a prompt and messages", ErrOptions)
	}
	return nil
}

// Generate continues a prompt, or answers a conversation, and calls emit with the text as it comes,
// until the model ends it (eos_token_id), a text to stop at comes, or o.Tokens are written. It uses
// a cache of keys and values. A prompt that is longer than the context loses its beginning, and when the
// context is full, the model continues from its last half: o.Warn and o.Report say so. The same
// options give the same text. Where the model computes no numbers to choose by, the text ends with
// ErrNotFinite.
func Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	if err := o.check(); err != nil {
		return err
	}
	g, err := OpenGenerator(o.ModelOptions)
	if err != nil {
		return err
	}
	o.ModelOptions = ModelOptions{}
	return errors.Join(g.Generate(ctx, o, emit), g.Close())
}

// Generator is an open model that writes one text after the other. It is used by one goroutine at
// a time.
type Generator struct {
	model  *trained.Model
	stream tensorops.Stream
}

// OpenGenerator opens a model. Its weights are read with the first text.
func OpenGenerator(o ModelOptions) (*Generator, error) {
	m, err := open(o, true)
	if err != nil {
		return nil, err
	}
	return GeneratorOf(m), nil
}

// GeneratorOf writes texts with a model that is open already, on a stream of its own: those of one model may be used
// side by side once its weights are there. It is for packages of this module.
func GeneratorOf(m *trained.Model) *Generator {
	return &Generator{m, m.Device.NewStream("generate")}
}

// Generate is the package's function, for this model: o.ModelOptions must be empty.
func (g *Generator) Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	if o.ModelOptions != (ModelOptions{}) {
		return fmt.Errorf("%w: the model is open already, and ModelOptions are %+v", ErrOptions, o.ModelOptions)
	}
	if err := o.check(); err != nil {
		return err
	}
	return g.generate(ctx, o, emit)
}

// Close frees the model.
func (g *Generator) Close() error { return g.model.Close() }

func (g *Generator) generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	m := g.model
	if !m.Shape.Config.Language() {
		return fmt.Errorf("%w: a model of the family %q writes no text", ErrOptions, m.Shape.Config.Family)
	}
	if m.Tokenizer == nil {
		return fmt.Errorf("%w: the model of %s has no known tokenizer, which is needed to read and write text", ErrOptions, m.From())
	}
	said, err := m.Text()
	if err != nil {
		return &SetupError{Err: err}
	}
	prompt, err := encodePrompt(m, said, o)
	if err != nil {
		return &SetupError{Err: fmt.Errorf("the prompt: %w", err)}
	}
	m.WarnOnce(o.Warn)
	size, err := positions(m, o.Context)
	if err != nil {
		return err
	}
	window := newTextWindow(size, m.Shape.Config.Positions(), o)
	if o.Report != nil {
		defer func() { *o.Report = window.report }()
	}
	next := window.begin(prompt)
	dec, err := g.decoder(len(next), window, o)
	if err != nil {
		return err
	}
	defer dec.Close()
	pick := newSampler(o, m.Tokenizer.Vocab())
	pick.seen(prompt...)
	w := &textWriter{text: tokenizer.NewTextDecoder(m.Tokenizer), stop: newStopper(o.Stop), emit: emit}
	ends := said.Stops(o.Messages, o.chat())
	sequence := append([]int32{}, next...)
	for i := range o.Tokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		if dec.Used()+len(next) > size {
			dec.Reset()
			next = window.move(sequence)
		}
		logits, err := dec.Next(next)
		if err != nil {
			return err
		}
		if err := pick.check(logits); err != nil {
			return fmt.Errorf("token %d of %d: %w: %s", i+1, o.Tokens, err, m.Suspicion())
		}
		id := pick.choose(logits, uint64(i))
		if !o.IgnoreEnd && slices.Contains(ends, id) {
			break
		}
		window.report.Tokens++
		pick.seen(id)
		sequence = append(tail(sequence, size), id)
		next = sequence[len(sequence)-1:]
		if ended, err := w.write(w.text.Decode(id)); ended || err != nil {
			return err
		}
	}
	return w.end()
}

// decoder makes one whose cache has room for a prompt and what is written after it. It refuses what does not fit the
// device, and reads the weights if they are not there yet.
func (g *Generator) decoder(prompt int, window *textWindow, o GenerateOptions) (*stages.Decoder, error) {
	m, size := g.model, window.size
	room := prompt + min(o.Tokens, size-prompt) // of the cache
	err := m.CheckMemory(fmt.Sprintf("a cache of keys and values for %d positions", room), func(_ tensorops.Stream, st *stages.Stage) error {
		dec, err := stages.NewDecoder(st, room)
		if err != nil {
			return err
		}
		longest := prompt
		if o.Tokens > size-prompt+1 { // the context will be full
			longest = max(longest, window.half)
		}
		_, err = dec.Next(make([]int32, longest))
		return err
	})
	if err != nil {
		return nil, err
	}
	if m.Weights == nil {
		if m.Weights, err = m.Stage(g.stream); err != nil {
			return nil, err
		}
	}
	return stages.NewDecoderOn(m.Weights, g.stream, room)
}

// textWriter passes on what of a text comes before the first text to stop at.
type textWriter struct {
	text *tokenizer.StreamDecoder
	stop *stopper
	emit func(text []byte) error
}

func (w *textWriter) write(b []byte) (ended bool, err error) {
	if b, ended = w.stop.take(b); len(b) > 0 {
		err = w.emit(b)
	}
	return ended, err
}

// end writes what was held back.
func (w *textWriter) end() error {
	if ended, err := w.write(w.text.Flush()); ended || err != nil {
		return err
	}
	if b := w.stop.rest(); len(b) > 0 {
		return w.emit(b)
	}
	return nil
}

// encodePrompt encodes a prompt, or a conversation up to where the answer begins; an empty one is a line
// break, or the first token of a vocabulary that has none.
func encodePrompt(m *trained.Model, said *corpus.Text, o GenerateOptions) ([]int32, error) {
	switch {
	case len(o.Messages) == 0 && o.Prompt != "":
		return said.Encode(o.Prompt)
	case len(o.Messages) == 0:
		if ids, err := m.Tokenizer.Encode([]byte("\n")); err == nil {
			return ids, nil
		}
		return []int32{0}, nil
	case said.Talk.Template == "":
		return nil, fmt.Errorf("%w: %s has %w; give it a prompt", ErrOptions, m.From(), corpus.ErrNoTemplate)
	case said.BadTemplate() != nil:
		return nil, fmt.Errorf("%s: %w", m.From(), said.BadTemplate())
	}
	return said.Question(o.Messages, o.chat())
}

// chat is what the options say to the chat template.
func (o GenerateOptions) chat() chat.Options {
	return chat.Options{Tools: o.Tools, Vars: o.TemplateVars, Now: time.Now()}
}

// tail is the last n of s, or all.
func tail(s []int32, n int) []int32 {
	if len(s) > n {
		return append([]int32{}, s[len(s)-n:]...)
	}
	return s
}
