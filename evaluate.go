package troupe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// EvalOptions say what to evaluate.
type EvalOptions struct {
	ModelOptions
	Data       []string // files or globs; none: the validation text of the run that the checkpoint is from
	Format     string   // "text", "documents", "uint16" or "uint32"; "": the run's
	Microbatch int      // sequences at a time; 0: 4
	// Context is the length of the windows in tokens, up to the model's positions; 0: that which the
	// model was trained with.
	Context int
	// TooLong says what becomes of a document that is longer than the context, other than a text alone: "cut"
	// or "refuse"; "": "cut".
	TooLong string
	// InvalidUTF8 says what becomes of a text that is not UTF-8: "refuse" or "bytes"; "": the run's
	// data.invalid_utf8.
	InvalidUTF8 string
	// SpecialTokens says what the names of special tokens in texts, prompts and completions are: "tokens" or
	// "text"; "": as in the run, and where there is none, tokens.
	SpecialTokens string
}

// EvalResult is the loss over a whole text.
type EvalResult struct {
	Loss       float64 `json:"loss"` // mean over target tokens, in nats
	Perplexity float64 `json:"perplexity"`
	// BitsPerByte is the sum of the loss over all targets, in bits, by the bytes of their text: it
	// compares models with different tokenizers. 0: the tokenizer is not known.
	BitsPerByte float64 `json:"bits_per_byte,omitempty"`
	Context     int     `json:"context,omitempty"` // tokens of a window
	Tokens      int64   `json:"tokens"`            // targets: every token once, but the first, and the first of each block of a run's validation text
	Windows     int     `json:"windows"`
	// Documents says what of documents the loss is not over; nil: the data are none, or texts that are
	// joined, of which nothing is left out.
	Documents *DocumentCounts `json:"documents,omitempty"`
	// Warnings say what a reader of the loss should know of the data.
	Warnings []string `json:"warnings,omitempty"`
	Samples  bool     `json:"samples,omitempty"` // Tokens are samples
	// Metrics are what the model's layers report beside the loss, such as a classifier's accuracy.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Step    int                `json:"step"` // of the checkpoint
	From    string             `json:"from"`
}

// Evaluate computes a model's loss on a text: windows one after the other, each
// token but the first a target once, the last window as short as it is. It runs
// a forward-only schedule on the same actors as training. A loss that is no number is
// ErrNotFinite, beside the result that has it.
func Evaluate(ctx context.Context, o EvalOptions) (EvalResult, error) {
	if f := o.Format; f != "" && f != "text" && f != "documents" && f != "uint16" && f != "uint32" {
		return EvalResult{}, fmt.Errorf("%w: the format %q; it is text, documents, uint16 or uint32", ErrOptions, f)
	}
	if w := o.TooLong; w != "" && w != "cut" && w != "refuse" {
		return EvalResult{}, fmt.Errorf("%w: too long documents are to be %q; it is cut or refuse", ErrOptions, w)
	}
	if s := o.InvalidUTF8; s != "" && s != config.UTF8OrRefuse && s != config.UTF8OrBytes {
		return EvalResult{}, fmt.Errorf("%w: text that is not UTF-8 as %q; it is refuse or bytes", ErrOptions, s)
	}
	if s := o.SpecialTokens; s != "" && s != config.SpecialAsTokens && s != config.SpecialAsText {
		return EvalResult{}, fmt.Errorf("%w: special tokens as %q; they are taken as tokens or text", ErrOptions, s)
	}
	t, err := openTrained(o.ModelOptions, false)
	if err != nil {
		return EvalResult{}, err
	}
	if !t.model.Config.Language() {
		if o.Format != "" {
			return EvalResult{}, errors.Join(fmt.Errorf("%w: the format %q; data are read as the run's were", ErrOptions, o.Format), t.close())
		}
		res, err := t.evaluateSamples(ctx, PredictOptions{ModelOptions: o.ModelOptions, Data: o.Data, Microbatch: max(o.Microbatch, 4)}, nil)
		return res, errors.Join(err, t.close())
	}
	res, err := t.evaluate(ctx, o)
	return res, errors.Join(err, t.close())
}

func (t *trained) evaluate(ctx context.Context, o EvalOptions) (res EvalResult, err error) {
	if o.Context, err = t.lengthen(o.Context); err != nil {
		return res, err
	}
	c, err := t.evalData(o)
	if err != nil {
		return res, plan.AsSetup(err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var src actors.Source
	var tokens int64
	if c.valRecords != nil {
		src, tokens = &recordSource{val: c.valRecords, windows: upTo(c.valRecords.Len())}, c.valRecords.Targets()
	} else {
		src = &source{corpora: c, windows: data.Sequential(c.val, o.Context)}
		tokens = c.val.Len() - int64(len(data.Pieces(c.val)))
	}
	if src.EvalWindows() == 0 {
		return res, &SetupError{Err: fmt.Errorf("%w: the text has %d tokens, a loss needs 2", data.ErrTooShort, c.val.Len())}
	}
	if o.Microbatch <= 0 {
		o.Microbatch = 4
	}
	if err := t.checkEvalMemory(src, o.Microbatch); err != nil {
		return res, err
	}
	spec, err := t.forwardSpec(feed{Source: src, context: o.Context, windows: src.EvalWindows()}, o.Microbatch)
	if err != nil {
		return res, err
	}
	loss := math.NaN()
	spec.OnEvent = func(e event.Event) {
		if s, ok := e.(StepEvent); ok && s.ValLoss != nil {
			loss = *s.ValLoss
		}
	}
	run, err := actors.Start(*spec)
	if err != nil {
		return res, err
	}
	stop := contextKill(ctx, run)
	out := run.Wait()
	stop()
	if errors.Is(out.Err, data.ErrVocab) {
		out.Err = &SetupError{Err: out.Err}
	}
	if err := errors.Join(ctx.Err(), out.Err); err != nil {
		return res, err
	}
	res = EvalResult{Loss: loss, Perplexity: math.Exp(loss), Tokens: tokens, Windows: src.EvalWindows(), Context: o.Context, Documents: c.counts, Warnings: c.warnings,
		Step: t.ckpt.Step(), From: t.ckpt.Dir()}
	if t.tokenizer != nil && c.val != nil {
		bytes, err := targetBytes(c.val, t.tokenizer, t.noText())
		if err != nil {
			return res, err
		}
		if bytes > 0 && !math.IsInf(loss, 0) && !math.IsNaN(loss) {
			res.BitsPerByte = loss / math.Ln2 * float64(tokens) / float64(bytes)
		}
	}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		err = fmt.Errorf("%w: the loss is %g: %s", ErrNotFinite, loss, t.suspicion())
	}
	return res, err
}

// lengthen makes the model one for windows of so many tokens, up to its positions, and returns how
// many they have.
func (t *trained) lengthen(context int) (int, error) {
	c := t.model.Config
	switch {
	case context == 0:
		return c.Context, nil
	case context < 1 || context > c.Positions():
		return 0, fmt.Errorf("%w: windows of %d tokens; the model of %s has %d positions", ErrOptions, context, t.from(), c.Positions())
	case context <= c.Context:
		return context, nil
	}
	c.Context, c.MaxPositions = context, c.Positions()
	m, err := stages.NewModel(c)
	if err == nil {
		t.model = m
	}
	return context, err
}

// contextKill ends a run when the context ends.
func contextKill(ctx context.Context, run *actors.Run) (stop func() bool) {
	return context.AfterFunc(ctx, run.Kill)
}

// evalData opens the text, as c.val.
func (t *trained) evalData(o EvalOptions) (*corpora, error) {
	c := &corpora{tokenizer: t.tokenizer}
	stored, err := t.ckpt.File(rundir.ConfigFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(o.Data) == 0 && err != nil {
		return nil, fmt.Errorf("%s does not say what it was validated on; name a text", t.ckpt.Dir())
	}
	cfg := &config.Config{}
	if err == nil {
		if cfg, err = config.ParseStored(rundir.ConfigFile, stored); err != nil {
			return nil, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
		}
	}
	switch f := o.Format; {
	case f == "":
	case len(o.Data) == 0 && f != cfg.Data.Format:
		return nil, fmt.Errorf("%w: the format %q, but the run's own data are %q; name a text of that format, or leave it out", ErrOptions, f, cfg.Data.Format)
	default:
		cfg.Data.Format = f
	}
	if o.TooLong != "" && !cfg.Documents() {
		return nil, fmt.Errorf("%w: what is too long (%s) is said of documents alone, and the data are %q; leave it out, or name the format documents", ErrOptions, o.TooLong, cfg.Data.Format)
	}
	cfg.Data.TooLong = orCut(o.TooLong)
	if o.InvalidUTF8 != "" {
		cfg.Data.InvalidUTF8 = o.InvalidUTF8
	}
	if o.SpecialTokens != "" {
		cfg.Data.SpecialTokens = o.SpecialTokens
	}
	cfg.Model.Vocab, cfg.Model.Context = t.model.Config.Vocab, o.Context
	if t.tokenizer == nil && cfg.IDBytes() == 0 {
		const otherwise = "without a known tokenizer only token ids (format uint16) can be evaluated"
		if t.noTokenizer != nil {
			return nil, fmt.Errorf("%s: %w; %s", t.ckpt.Dir(), t.noTokenizer, otherwise)
		}
		return nil, fmt.Errorf("%s has no %s; %s", t.ckpt.Dir(), rundir.TokensFile, otherwise)
	}
	if len(o.Data) > 0 {
		files, err := data.Files(o.Data)
		c.warnings = leftOut("the data", o.Data, nil)
		if err == nil && cfg.Documents() {
			return c, t.evalDocuments(c, cfg, files, nil)
		}
		if err == nil {
			c.val, err = c.read(cfg, files, nil)
		}
		if err != nil {
			return nil, errors.Join(unreadableData(err), c.Close())
		}
		c.warnNames(cfg, true)
		return c, nil
	}
	if err := t.validationText(c, cfg); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.warnNames(cfg, true)
	return c, nil
}

// validationText opens that of the run which the model is from, as it was.
func (t *trained) validationText(c *corpora, cfg *config.Config) error {
	b, err := t.ckpt.File(rundir.TrainerFile)
	if err != nil {
		return err
	}
	var state trainstate.State
	if err := json.Unmarshal(b, &state); err != nil {
		return fmt.Errorf("%s: %s: %w", t.ckpt.Dir(), rundir.TrainerFile, err)
	}
	switch v := state.FormatVersion; {
	case v > trainstate.Version:
		return fmt.Errorf("%s: %w", t.ckpt.Dir(), rundir.TooNew(v))
	case v == 1: // which split the tail off, and did not identify its data
		cfg.Data.ValSplit = data.Tail
	}
	key, names, was := "data.val", cfg.Data.Val, state.Data.Val
	if len(names) == 0 {
		key, names, was = "data.train", cfg.Data.Train, &state.Data.Train
	}
	files, err := data.Files(names)
	if err != nil {
		return cfg.Errorf(key, "%w", unreadableData(err))
	}
	var accept func(is data.Identity) error
	if state.FormatVersion != 1 && was != nil {
		accept = func(is data.Identity) error {
			if d := was.Difference(is); d != "" {
				return fmt.Errorf("the text is not the one that the run was validated on (%s); restore it, or name the text to evaluate", d)
			}
			return nil
		}
	}
	if cfg.Documents() {
		return t.evalDocuments(c, cfg, files, accept)
	}
	corpus, err := c.read(cfg, files, accept)
	if err != nil {
		return cfg.Errorf(key, "%w", err)
	}
	if c.val = corpus; key == "data.train" {
		_, c.val, err = data.Split(corpus, cfg.Data.ValSplit, cfg.Data.ValFraction)
	}
	return err
}

// evalDocuments reads documents to evaluate: all of files, or where accept is there and the run has
// no data.val, those that it validates on.
func (t *trained) evalDocuments(c *corpora, cfg *config.Config, files []string, accept func(is data.Identity) error) error {
	text, err := data.ReadText(files)
	if err == nil && accept != nil {
		err = accept(text.Identity())
	}
	if err != nil {
		return err
	}
	said, err := t.text()
	if err != nil {
		return err
	}
	r, err := newDocumentReader(t.tokenizer, said.talk, cfg.Data.SpecialTokens)
	if err != nil {
		return err
	}
	docs, err := readDocuments(text, r)
	if err == nil {
		err = place(text, docs)
	}
	if err != nil {
		return err
	}
	if accept != nil && len(cfg.Data.Val) == 0 {
		if _, docs, err = splitDocuments(docs, cfg.Data.ValFraction); err != nil {
			return err
		}
	}
	c.warnings = append(c.warnings, append(said.warnings(), r.warnings("the data", true)...)...)
	if allText(docs) {
		c.val = joined(docs)
		return nil
	}
	var cut cutting
	c.valRecords, cut, err = fit(docs, cfg.Model.Context, cfg.Data.TooLong)
	c.counts, c.warnings = &cut.DocumentCounts, append(c.warnings, cut.warnings(cfg.Model.Context)...)
	return err
}

func orCut(tooLong string) string {
	if tooLong == "" {
		return "cut"
	}
	return tooLong
}

// upTo are the numbers below n.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// checkEvalMemory refuses windows that are too long, or too many at a time, for the
// device.
func (t *trained) checkEvalMemory(src actors.Source, microbatch int) error {
	sequences, positions := min(microbatch, src.EvalWindows()), 0
	for i := range src.EvalWindows() {
		positions = max(positions, src.EvalLen(i))
	}
	what := fmt.Sprintf("windows of %d tokens, %d at a time,", positions, sequences)
	return t.checkMemory(what, func(s tensorops.Stream, st *stages.Stage) error {
		if positions > math.MaxInt32/sequences {
			return fmt.Errorf("%w: %d tokens at a time", tensorops.ErrOutOfMemory, int64(sequences)*int64(positions))
		}
		ids := make([]int32, sequences*positions)
		l := s.NewList()
		st.Forward(l, 0, &stages.Microbatch{Sequences: sequences, Positions: positions, Tokens: ids, Targets: ids})
		return tensorops.Run(s, l)
	})
}
