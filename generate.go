package troupe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
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
	Messages []chat.Message
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

// ErrOptions: a number is out of its range.
var ErrOptions = plan.ErrOptions

// ErrNotFinite: a model computes NaN or infinity where a number is needed.
var ErrNotFinite = errors.New("not a finite number")

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
	t      *trained
	stream tensorops.Stream
}

// OpenGenerator opens a model. Its weights are read with the first text.
func OpenGenerator(o ModelOptions) (*Generator, error) {
	t, err := openTrained(o, true)
	if err != nil {
		return nil, err
	}
	return &Generator{t, t.device.NewStream("generate")}, nil
}

// Generate is the package's function, for this model: o.ModelOptions must be empty.
func (g *Generator) Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	if o.ModelOptions != (ModelOptions{}) {
		return fmt.Errorf("%w: the model is open already", ErrOptions)
	}
	if err := o.check(); err != nil {
		return err
	}
	return g.t.generate(ctx, o, g.stream, emit)
}

// Close frees the model.
func (g *Generator) Close() error { return g.t.close() }

// generate uses a stream of t's device.
func (t *trained) generate(ctx context.Context, o GenerateOptions, stream tensorops.Stream, emit func(text []byte) error) error {
	if !t.model.Config.Language() {
		return fmt.Errorf("%w: a model of the family %q writes no text", ErrOptions, t.model.Config.Family)
	}
	if t.tokenizer == nil {
		return fmt.Errorf("%w: the model of %s has no known tokenizer, which is needed to read and write text", ErrOptions, t.from())
	}
	said, err := t.text()
	if err != nil {
		return &SetupError{Err: err}
	}
	prompt, err := t.prompt(said, o)
	if err != nil {
		return &SetupError{Err: fmt.Errorf("the prompt: %w", err)}
	}
	t.warnOnce(o.Warn)
	ends := said.stops(o.Messages, o.chat())
	size, err := t.positions(o.Context)
	if err != nil {
		return err
	}
	window := newTextWindow(size, t.model.Config.Positions(), o)
	if o.Report != nil {
		defer func() { *o.Report = window.report }()
	}
	next := window.begin(prompt)
	room := len(next) + min(o.Tokens, size-len(next)) // of the cache
	err = t.checkMemory(fmt.Sprintf("a cache of keys and values for %d positions", room), func(_ tensorops.Stream, st *stages.Stage) error {
		dec, err := stages.NewDecoder(st, room)
		if err != nil {
			return err
		}
		longest := next
		if o.Tokens > size-len(next)+1 && len(next) < window.half { // the context will be full
			longest = make([]int32, window.half)
		}
		_, err = dec.Next(longest)
		return err
	})
	if err != nil {
		return err
	}
	if t.weights == nil {
		if t.weights, err = t.stage(stream); err != nil {
			return err
		}
	}
	dec, err := stages.NewDecoderOn(t.weights, stream, room)
	if err != nil {
		return err
	}
	defer dec.Close()
	sequence := append([]int32{}, next...)
	pick := newSampler(o, t.tokenizer.Vocab())
	pick.seen(prompt...)
	text, stop := tokenizer.NewTextDecoder(t.tokenizer), newStopper(o.Stop)
	write := func(b []byte) (ended bool, err error) {
		if b, ended = stop.take(b); len(b) > 0 {
			err = emit(b)
		}
		return ended, err
	}
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
			return fmt.Errorf("token %d of %d: %w: %s", i+1, o.Tokens, err, t.suspicion())
		}
		id := pick.choose(logits, uint64(i))
		if !o.IgnoreEnd && slices.Contains(ends, id) {
			break
		}
		window.report.Tokens++
		pick.seen(id)
		sequence = append(tail(sequence, size), id)
		next = sequence[len(sequence)-1:]
		if ended, err := write(text.Decode(id)); ended || err != nil {
			return err
		}
	}
	if ended, err := write(text.Flush()); ended || err != nil {
		return err
	}
	if b := stop.rest(); len(b) > 0 {
		return emit(b)
	}
	return nil
}

// text is how the model's texts become ids: with what its directory says, and as its run read them.
func (t *trained) text() (*modelText, error) {
	if t.said != nil {
		return t.said, nil
	}
	talk, err := rundir.ReadTalk(t.ckpt, t.tokenizer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
	}
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	special := ""
	if cfg != nil {
		special = cfg.Data.SpecialTokens
	}
	t.said = newModelText(t.tokenizer, talk, special)
	return t.said, nil
}

// config is the run's that the model is from; nil: it is from none.
func (t *trained) config() (*config.Config, error) {
	stored, err := t.ckpt.File(rundir.ConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cfg, err := config.ParseStored(rundir.ConfigFile, stored)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
	}
	return cfg, nil
}

// warnOnce says what is doubtful about the model's files, with its first text.
func (t *trained) warnOnce(warn func(string)) {
	if warn == nil || t.warned {
		return
	}
	t.warned = true
	for _, text := range t.said.warnings() {
		warn(text)
	}
}

// prompt encodes a prompt, or a conversation up to where the answer begins; an empty one is a line
// break, or the first token of a vocabulary that has none.
func (t *trained) prompt(said *modelText, o GenerateOptions) ([]int32, error) {
	switch {
	case len(o.Messages) == 0 && o.Prompt != "":
		return said.text(o.Prompt)
	case len(o.Messages) == 0:
		if ids, err := t.tokenizer.Encode([]byte("\n")); err == nil {
			return ids, nil
		}
		return []int32{0}, nil
	case said.talk.Template == "":
		return nil, fmt.Errorf("%w: %s has %w; give it a prompt", ErrOptions, t.from(), errNoTemplate)
	case said.bad != nil:
		return nil, fmt.Errorf("%s: %w", t.from(), said.bad)
	}
	return said.question(o.Messages, o.chat())
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
