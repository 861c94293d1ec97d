package infer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// EvalOptions are the options of Evaluate.
type EvalOptions struct {
	ModelOptions
	Data []string // files or patterns; none: the validation data of the model's run
	// Set is the name of a validation set of the run: that of an [[eval]], or config.MainSet. "": the one that decides which checkpoint is
	// the best, and for EvaluateSets all.
	Set string
	// Format is "text", "documents", "uint16" or "uint32"; "": documents for files of JSON lines (.jsonl), else the run's, else text.
	Format     string
	Microbatch int // sequences at a time; 0: 4
	// Context is the length of a window in tokens, up to the model's positions; 0: the context of the
	// training.
	Context int
	// TooLong says what to do with a document with a prompt or messages that is longer than the context: "cut" it,
	// or "refuse" the data; "": "cut".
	TooLong string
	// InvalidUTF8 says what to do with text that is not UTF-8: "refuse" the data, or keep the "bytes"; "": the run's
	// data.invalid_utf8.
	InvalidUTF8 string
	// SpecialTokens says whether names of special tokens in texts, prompts and completions are "tokens" or
	// "text"; "": as in the run, or tokens without a run.
	SpecialTokens string
	// Fields names keys of documents that are called otherwise, such as "prompt=question"; none: as in the run.
	Fields []string
}

// DocumentCounts count the documents and tokens that did not fit the context.
type DocumentCounts struct {
	Total   int `json:"total"`
	Cut     int `json:"cut"`     // documents of which only the beginning is used
	Dropped int `json:"dropped"` // documents of which no token to learn fits
	// TargetsLeftOut is the number of tokens to learn that were lost, because they did not fit or because
	// their document has a single token.
	TargetsLeftOut int64 `json:"targets_left_out"`
	Tokens         int64 `json:"tokens"`  // of the documents as far as they are used; most are not learned, but given
	Learned        int64 `json:"learned"` // tokens that the loss is about
	Longest        int   `json:"longest"` // tokens of the longest document, before it is cut
}

// EvalResult is the loss on a text or on samples.
type EvalResult struct {
	// Set is the name of the validation set; "": the run has no [[eval]], or files were named.
	Set        string  `json:"set,omitempty"`
	Loss       float64 `json:"loss"` // mean over target tokens, in nats
	Perplexity float64 `json:"perplexity"`
	// BitsPerByte is the sum of the loss over all targets, in bits, divided by the bytes of their text. Use it to
	// compare models with different tokenizers. 0: the tokenizer is not known.
	BitsPerByte float64 `json:"bits_per_byte,omitempty"`
	Context     int     `json:"context,omitempty"` // tokens of a window
	// Tokens is the number of targets: each token once, except the first, and the first of each block of a run's
	// validation text.
	Tokens  int64 `json:"tokens"`
	Windows int   `json:"windows"`
	// Documents counts what was cut or dropped; nil: the data is not documents, or is joined
	// texts, of which nothing is lost.
	Documents *DocumentCounts `json:"documents,omitempty"`
	// Warnings are about the data.
	Warnings []string `json:"warnings,omitempty"`
	Samples  bool     `json:"samples,omitempty"` // Tokens are samples
	// Metrics are those that the model's layers report besides the loss, such as a classifier's accuracy.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Step    int                `json:"step"` // of the checkpoint
	From    string             `json:"from"`
}

// evaluateText evaluates one text.
func evaluateText(ctx context.Context, m *trained.Model, o EvalOptions) (res EvalResult, err error) {
	if o.Context, err = m.Lengthen(o.Context); err != nil {
		return res, err
	}
	c, err := corpus.LoadEval(readerOf(m), corpus.EvalOptions{Data: o.Data, Set: o.Set, Format: o.Format, TooLong: o.TooLong,
		InvalidUTF8: o.InvalidUTF8, SpecialTokens: o.SpecialTokens, Fields: o.Fields, Context: o.Context})
	if err != nil {
		return res, plan.AsSetup(err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	src, targets := c.EvalFeed(o.Context)
	if src.Windows == 0 {
		return res, &SetupError{Err: fmt.Errorf("%w: the text has %d tokens, but a loss needs at least 2", data.ErrTooShort, c.Val.Len())}
	}
	if o.Microbatch <= 0 {
		o.Microbatch = 4
	}
	if err := checkEvalMemory(m, src, o.Microbatch); err != nil {
		return res, err
	}
	loss, _, err := forwardOn(ctx, m, src, o.Microbatch, nil)
	if errors.Is(err, data.ErrVocab) {
		err = &SetupError{Err: err}
	}
	if err != nil {
		return res, err
	}
	res = EvalResult{Loss: loss, Perplexity: math.Exp(loss), Tokens: targets, Windows: src.Windows, Context: o.Context,
		Documents: (*DocumentCounts)(c.Counts), Warnings: c.Warnings,
		Step: m.Checkpoint.Step(), From: m.Checkpoint.Dir()}
	if m.Tokenizer != nil && c.Val != nil {
		bytes, err := targetBytes(c.Val, m.Tokenizer, noText(m))
		if err != nil {
			return res, err
		}
		if bytes > 0 && !math.IsInf(loss, 0) && !math.IsNaN(loss) {
			res.BitsPerByte = loss / math.Ln2 * float64(targets) / float64(bytes)
		}
	}
	return res, checkFinite(m, loss)
}

// readerOf describes a model to the functions that read data.
func readerOf(m *trained.Model) corpus.Model {
	return corpus.Model{Checkpoint: m.Checkpoint, Config: m.Shape.Config, Tokenizer: m.Tokenizer, NoTokenizer: m.NoTokenizer, Text: m.Text}
}

// checkEvalMemory rejects windows that are too long, or too many at a time, for the
// device's memory.
func checkEvalMemory(m *trained.Model, src corpus.Feed, microbatch int) error {
	sequences, positions := min(microbatch, src.Windows), 0
	for i := range src.Windows {
		positions = max(positions, src.EvalLen(i))
	}
	what := fmt.Sprintf("windows of %d tokens, %d at a time,", positions, sequences)
	return m.CheckMemory(what, 0, func(s *tensorops.DryStream, st *stages.Stage) error {
		if positions > math.MaxInt32/sequences {
			return fmt.Errorf("%w: %d tokens at a time", tensorops.ErrOutOfMemory, int64(sequences)*int64(positions))
		}
		ids := make([]int32, sequences*positions)
		l := s.NewList()
		st.Forward(l, 0, &stages.Microbatch{Sequences: sequences, Positions: positions, Tokens: ids, Targets: ids})
		return tensorops.Run(s, l)
	})
}
