package troupe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/troupe-ml/troupe/internal/rng"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tokenizer"
)

// GenerateOptions say what to write.
type GenerateOptions struct {
	ModelOptions
	Prompt      string  // "": a line break, where the vocabulary has one
	Tokens      int     // to write
	Temperature float64 // 0: always the most likely token
	TopK        int     // choose among the k most likely; 0: among all
	Seed        uint64
}

// ErrOptions: a number is out of its range.
var ErrOptions = errors.New("impossible option")

// ErrNotFinite: a model computes NaN or infinity where a number is needed.
var ErrNotFinite = errors.New("not a finite number")

func (o GenerateOptions) check() error {
	switch {
	case o.Tokens < 0:
		return fmt.Errorf("%w: %d tokens; give 0 or more", ErrOptions, o.Tokens)
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0):
		return fmt.Errorf("%w: a temperature of %g; give 0 or more", ErrOptions, o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("%w: top-k of %d; give 0 (all) or more", ErrOptions, o.TopK)
	}
	return nil
}

// Generate continues a prompt, and calls emit with the text as it comes. It uses
// a cache of keys and values; when the context is full, the sequence goes on
// from its last half. The same options give the same text. Where the model computes no
// numbers to choose by, the text ends with ErrNotFinite.
func Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	if err := o.check(); err != nil {
		return err
	}
	t, err := openTrained(o.ModelOptions, true)
	if err != nil {
		return err
	}
	return errors.Join(t.generate(ctx, o, t.device.NewStream("generate"), emit), t.close())
}

// generate uses a stream of t's device.
func (t *trained) generate(ctx context.Context, o GenerateOptions, stream tensorops.Stream, emit func(text []byte) error) error {
	if !t.model.Config.Language() {
		return fmt.Errorf("%w: a model of the family %q writes no text", ErrOptions, t.model.Config.Family)
	}
	if t.tokenizer == nil {
		return fmt.Errorf("%w: the model of %s has no known tokenizer, which is needed to read and write text", ErrOptions, t.from())
	}
	prompt, err := t.prompt(o.Prompt)
	if err != nil {
		return &SetupError{fmt.Errorf("the prompt: %w", err)}
	}
	window := t.model.Config.Context
	next := tail(prompt, window)
	half := max(1, window/2)                            // to go on from when the context is full
	room := len(next) + min(o.Tokens, window-len(next)) // of the cache
	err = t.checkMemory(fmt.Sprintf("a cache of keys and values for %d positions", room), func(_ tensorops.Stream, st *stages.Stage) error {
		dec, err := stages.NewDecoder(st, room)
		if err != nil {
			return err
		}
		longest := next
		if o.Tokens > window-len(next)+1 && len(next) < half { // the context will be full
			longest = make([]int32, half)
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
	text := tokenizer.NewStreamDecoder(t.tokenizer)
	for i := range o.Tokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		if dec.Used()+len(next) > window {
			dec.Reset()
			next = tail(sequence, half)
		}
		logits, err := dec.Next(next)
		if err != nil {
			return err
		}
		if err := pick.check(logits); err != nil {
			return fmt.Errorf("token %d of %d: %w: %s", i+1, o.Tokens, err, t.suspicion())
		}
		id := pick.choose(logits, uint64(i))
		sequence = append(tail(sequence, window), id)
		next = sequence[len(sequence)-1:]
		if b := text.Decode(id); len(b) > 0 {
			if err := emit(b); err != nil {
				return err
			}
		}
	}
	if b := text.Flush(); len(b) > 0 {
		return emit(b)
	}
	return nil
}

// prompt encodes a prompt; an empty one is a line break, or the first token of a
// vocabulary that has none.
func (t *trained) prompt(text string) ([]int32, error) {
	if text != "" {
		return t.tokenizer.Encode([]byte(text))
	}
	if ids, err := t.tokenizer.Encode([]byte("\n")); err == nil {
		return ids, nil
	}
	return []int32{0}, nil
}

// tail is the last n of s, or all.
func tail(s []int32, n int) []int32 {
	if len(s) > n {
		return append([]int32{}, s[len(s)-n:]...)
	}
	return s
}

// sampler draws tokens.
type sampler struct {
	o     GenerateOptions
	key   rng.Key
	order []int // token ids, the most likely first
	probs []float64
}

func newSampler(o GenerateOptions, vocab int) *sampler {
	s := &sampler{o: o, key: rng.NewKey(o.Seed, rng.StringStream("generate")), order: make([]int, vocab), probs: make([]float64, vocab)}
	return s
}

// check refuses logits that no token can be drawn by. Minus infinity only says that a
// token never comes, as long as another one may.
func (s *sampler) check(logits []float32) error {
	top := float32(math.Inf(-1))
	for id := range s.order {
		l := float64(logits[id])
		if math.IsNaN(l) || math.IsInf(l, 1) {
			return fmt.Errorf("%w: the logit of id %d is %g", ErrNotFinite, id, l)
		}
		top = max(top, logits[id])
	}
	if math.IsInf(float64(top), -1) {
		return fmt.Errorf("%w: all %d logits are -Inf", ErrNotFinite, len(s.order))
	}
	return nil
}

// choose draws token number i from the logits. Ids above the tokenizer's are
// padding of the model's vocabulary and never drawn.
func (s *sampler) choose(logits []float32, i uint64) int32 {
	for j := range s.order {
		s.order[j] = j
	}
	sort.SliceStable(s.order, func(a, b int) bool { return logits[s.order[a]] > logits[s.order[b]] })
	if s.o.Temperature == 0 {
		return int32(s.order[0])
	}
	k := len(s.order)
	if s.o.TopK > 0 {
		k = min(k, s.o.TopK)
	}
	top := float64(logits[s.order[0]])
	var sum float64
	for j, id := range s.order[:k] {
		s.probs[j] = math.Exp((float64(logits[id]) - top) / s.o.Temperature)
		sum += s.probs[j]
	}
	word, _, _, _ := rng.Block(s.key, 0, i)
	u := rng.Uniform(word) * sum
	for j, p := range s.probs[:k] {
		if u -= p; u <= 0 {
			return int32(s.order[j])
		}
	}
	return int32(s.order[k-1])
}
