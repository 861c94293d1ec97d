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
	"github.com/troupe-ml/troupe/tensorops"
)

// GenerateOptions are the options of Generate.
type GenerateOptions struct {
	ModelOptions
	TextOptions
}

// TextOptions say which text an open model generates.
type TextOptions struct {
	Prompt      string  // "": a line break, if the vocabulary has one
	Tokens      int     // the most tokens to generate
	Temperature float64 // 0: always the most likely token
	TopK        int     // choose among the k most likely tokens; 0: among all
	// TopP chooses among the most likely tokens whose probabilities sum up to this;
	// 0: among all.
	TopP float64
	// MinP drops tokens whose probability is less than this fraction of that of the most likely token.
	MinP float64
	// RepetitionPenalty divides the positive logits of tokens that are in the text already, and multiplies the
	// negative ones; 0 or 1: no penalty (Keskar et al. 2019).
	RepetitionPenalty float64
	Seed              uint64
	// Stop are strings that end the text. They are not part of it.
	Stop []string
	// IgnoreEnd continues after the model ends its text (eos_token_id).
	IgnoreEnd bool
	// Context is the largest number of tokens that the model sees, including the prompt's, up to its positions;
	// 0: all its positions, even if a run trained it with fewer.
	Context int
	// Fit refuses a prompt that is longer than the context (ErrContext), and ends the text when the context is full. Without it the
	// beginning of the prompt is cut, and the model continues from the last half of a full context.
	Fit bool
	// Messages are a conversation to answer. The model's chat template renders it. Prompt must be
	// empty then.
	Messages []Message
	// Tools is a JSON array of functions that the answer may call, for the chat template; nil: none.
	Tools json.RawMessage
	// TemplateVars are variables for the template, such as "enable_thinking".
	TemplateVars map[string]any
	// Warn is called with a sentence if the prompt is cut, and when the context is full for the first time; nil: no
	// warnings.
	Warn func(warning string)
	// Report, if not nil, is filled in at the end of the text.
	Report *GenerateReport
}

// Message is a message of a conversation.
type Message = chat.Message

func (o TextOptions) check() error {
	switch {
	case o.Tokens < 0:
		return fmt.Errorf("%w: tokens is %d; use 0 or more", ErrOptions, o.Tokens)
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0):
		return fmt.Errorf("%w: temperature is %g; use 0 or more", ErrOptions, o.Temperature)
	case o.Context < 0:
		return fmt.Errorf("%w: context is %d tokens; use 1 or more, or 0 for all positions of the model", ErrOptions, o.Context)
	case o.TopK < 0:
		return fmt.Errorf("%w: top-k is %d; use 0 (all) or more", ErrOptions, o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return fmt.Errorf("%w: top-p is %g; use 0 (all) to 1", ErrOptions, o.TopP)
	case !(o.MinP >= 0 && o.MinP < 1):
		return fmt.Errorf("%w: min-p is %g; use 0 or more, but less than 1", ErrOptions, o.MinP)
	case !(o.RepetitionPenalty >= 0) || math.IsInf(o.RepetitionPenalty, 0):
		return fmt.Errorf("%w: repetition penalty is %g; use more than 0, or 0 for none", ErrOptions, o.RepetitionPenalty)
	case slices.Contains(o.Stop, ""):
		return fmt.Errorf("%w: a stop string is empty; leave it out", ErrOptions)
	case len(o.Messages) > 0 && o.Prompt != "":
		return fmt.Errorf("%w: there are a prompt and messages; give only one of them", ErrOptions)
	}
	return nil
}

// Generate continues a prompt, or answers a conversation, and calls emit with each piece of the text. The text ends
// when the model ends it (eos_token_id), at a stop string, or after o.Tokens tokens. Generate uses
// a cache of keys and values. If the prompt is longer than the context, its beginning is cut. When the
// context is full, the model continues from its last half. o.Warn and o.Report report both. The same
// options give the same text. If a logit is not finite, the error is ErrNotFinite.
func Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	if err := o.check(); err != nil {
		return err
	}
	g, err := OpenGenerator(o.ModelOptions)
	if err != nil {
		return err
	}
	return errors.Join(g.Generate(ctx, o.TextOptions, emit), g.Close())
}

// Generator is an open model that generates one text after the other. Only one goroutine may use it at
// a time.
type Generator struct {
	model  *trained.Model
	stream tensorops.Stream
}

// OpenGenerator opens a model. It reads the weights when the first text is generated.
func OpenGenerator(o ModelOptions) (*Generator, error) {
	m, err := open(o, true)
	if err != nil {
		return nil, err
	}
	return GeneratorOf(m), nil
}

// GeneratorOf returns a Generator of an open model, on its own stream. Several Generators of one model may work
// at the same time once its weights are loaded. It is for packages of this module.
func GeneratorOf(m *trained.Model) *Generator {
	return &Generator{m, m.Device.NewStream("generate")}
}

// Generate generates a text, as the function Generate does.
func (g *Generator) Generate(ctx context.Context, o TextOptions, emit func(text []byte) error) error {
	if err := o.check(); err != nil {
		return err
	}
	return g.generate(ctx, o, emit)
}

// From returns the folder that the model is from.
func (g *Generator) From() string { return g.model.From() }

// Close frees the model.
func (g *Generator) Close() error { return g.model.Close() }

func (g *Generator) generate(ctx context.Context, o TextOptions, emit func(text []byte) error) error {
	w, err := newWriting(g.model, o, emit)
	if err != nil {
		return err
	}
	if o.Report != nil {
		defer func() { *o.Report = w.window.report }()
	}
	alone := group{model: g.model, stream: g.stream}
	t, err := alone.add(w)
	if err != nil {
		return err
	}
	defer alone.remove(t)
	for !w.ended {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := alone.step(); err != nil {
			return err
		}
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

// encodePrompt encodes a prompt, or a conversation up to its answer. An empty prompt is a line
// break, or the first token if the vocabulary has none.
// fits may refuse a text before it is encoded.
func encodePrompt(m *trained.Model, said *corpus.Text, o TextOptions, fits func(bytes int) error) ([]int32, error) {
	switch {
	case len(o.Messages) == 0 && o.Prompt != "":
		if err := fits(len(o.Prompt)); err != nil {
			return nil, err
		}
		return said.Encode(o.Prompt)
	case len(o.Messages) == 0:
		if ids, err := m.Tokenizer.Encode([]byte("\n")); err == nil {
			return ids, nil
		}
		return []int32{0}, nil
	case said.Talk.Template == "":
		return nil, fmt.Errorf("%w: %s has %w; use a prompt instead of messages, or %s", ErrOptions, m.From(), corpus.ErrNoTemplate,
			corpus.ChooseTemplate)
	case said.BadTemplate() != nil:
		return nil, fmt.Errorf("%s: %w: %w", m.From(), corpus.ErrTemplate, said.BadTemplate())
	}
	return said.Question(o.Messages, o.chat(), fits)
}

// chat returns the options of the chat template.
func (o TextOptions) chat() chat.Options {
	return chat.Options{Tools: o.Tools, Vars: o.TemplateVars, Now: time.Now()}
}

// tail returns the last n elements of s, or all.
func tail(s []int32, n int) []int32 {
	if len(s) > n {
		return append([]int32{}, s[len(s)-n:]...)
	}
	return s
}
