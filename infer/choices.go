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

// ChoicesOptions are the options of EvaluateChoices.
type ChoicesOptions struct {
	ModelOptions
	Data []string // files or patterns of JSON lines: see docs/evaluation.md
	// Context is the most tokens of a prompt with a choice; 0: the model's positions.
	Context int
	// TooLong says what to do with an item that is longer: "cut" its beginning, or "refuse" the data; "": "cut".
	TooLong string
}

// Choice is the result of one item.
type Choice struct {
	Row            int       `json:"row"` // in its file, from 1
	Answer         int       `json:"answer"`
	Chosen         int       `json:"chosen"`      // the most likely choice
	ChosenNorm     int       `json:"chosen_norm"` // the most likely choice by log-likelihood per character
	LogLikelihoods []float64 `json:"log_likelihoods"`
	Cut            bool      `json:"cut,omitempty"` // the beginning of the prompt did not fit
}

// ChoicesResult is the accuracy on multiple-choice items.
type ChoicesResult struct {
	Accuracy     float64  `json:"acc"`      // share of items whose most likely choice is the answer
	AccuracyErr  float64  `json:"acc_err"`  // its standard error
	AccuracyNorm float64  `json:"acc_norm"` // by log-likelihood per character
	NormErr      float64  `json:"acc_norm_err"`
	Items        []Choice `json:"items"`
	Cut          int      `json:"cut,omitempty"` // items that did not fit
	Step         int      `json:"step"`
	From         string   `json:"from"`
}

// limitRows is the most tokens of branches that the model scores at once, if one item alone does not have more.
const limitRows = 1024

// EvaluateChoices scores the choices of multiple-choice items by their log-likelihood after the prompt. Accuracy is that of
// lm-evaluation-harness: acc takes the sum over a choice's tokens, acc_norm divides it by the choice's characters.
func EvaluateChoices(ctx context.Context, o ChoicesOptions) (res ChoicesResult, err error) {
	if w := o.TooLong; w != "" && w != "cut" && w != "refuse" {
		return res, fmt.Errorf("%w: unknown value %q for too long items; use cut or refuse", ErrOptions, w)
	}
	items, err := corpus.ReadChoices(o.Data)
	if err != nil {
		return res, plan.AsSetup(err)
	}
	m, err := open(o.ModelOptions, true)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	said, err := m.Text()
	if err != nil {
		return res, &SetupError{Err: err}
	}
	size, err := positions(m, o.Context)
	if err != nil {
		return res, err
	}
	s := &scorer{model: m, items: make([]scoring, len(items))}
	for i, item := range items {
		if err := s.items[i].read(said, item, size, o.TooLong, m); err != nil {
			return res, &SetupError{Err: fmt.Errorf("%s, row %d: %w", data.Plain(item.File), item.Row, err)}
		}
		if s.items[i].Cut {
			res.Cut++
		}
	}
	if err := s.run(ctx); err != nil {
		return res, err
	}
	right, rightNorm := 0, 0
	for i := range s.items {
		it := &s.items[i]
		it.choose()
		for _, v := range it.LogLikelihoods {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return res, fmt.Errorf("%w: a choice of row %d has the log-likelihood %g: %s", ErrNotFinite, it.Row, v, m.Suspicion())
			}
		}
		if it.Chosen == it.Answer {
			right++
		}
		if it.ChosenNorm == it.Answer {
			rightNorm++
		}
		res.Items = append(res.Items, it.Choice)
	}
	res.Accuracy, res.AccuracyErr = share(right, len(items))
	res.AccuracyNorm, res.NormErr = share(rightNorm, len(items))
	res.Step, res.From = m.Checkpoint.Step(), m.Checkpoint.Dir()
	return res, nil
}

// share returns a share and its standard error, that of a mean of n samples.
func share(of, n int) (p, err float64) {
	p = float64(of) / float64(n)
	if n > 1 {
		err = math.Sqrt(p * (1 - p) / float64(n-1))
	}
	return p, err
}

// scoring is an item in progress.
type scoring struct {
	Choice
	corpus.ChoiceTokens
	shared int // tokens at the beginning of all choices that the model reads once
}

// read encodes an item and cuts what does not fit into size positions. The last token is never read.
func (s *scoring) read(said *corpus.Text, item corpus.ChoiceItem, size int, tooLong string, m *trained.Model) (err error) {
	s.Row, s.Answer = item.Row, item.Answer
	if s.ChoiceTokens, err = said.Choices(item); err != nil {
		return err
	}
	longest := 0
	for i, ids := range s.IDs {
		if over := len(ids) - 1 - size; over > 0 {
			if tooLong == "refuse" || over >= s.First[i] {
				return fmt.Errorf("choice %d has %d tokens with its prompt, but the context has %d", i+1, len(ids), size)
			}
			s.IDs[i], s.First[i], s.Cut = ids[over:], s.First[i]-over, true
		}
		longest = max(longest, len(s.IDs[i])-1)
	}
	s.LogLikelihoods = make([]float64, len(s.IDs))
	if m.Shape.Config.RopeScaling.Whole(longest) {
		return nil
	}
	s.shared = s.First[0] - 1
	for i, ids := range s.IDs {
		s.shared = min(s.shared, s.First[i]-1)
		for k := range s.shared {
			if ids[k] != s.IDs[0][k] {
				s.shared = k
				break
			}
		}
	}
	return nil
}

// rows is the number of tokens of the item's branches.
func (s *scoring) rows() (n int) {
	for _, ids := range s.IDs {
		n += len(ids) - 1 - s.shared
	}
	return n
}

// choose takes the first of the most likely choices.
func (s *scoring) choose() {
	for i, v := range s.LogLikelihoods {
		if v > s.LogLikelihoods[s.Chosen] {
			s.Chosen = i
		}
		if v/float64(s.Length[i]) > s.LogLikelihoods[s.ChosenNorm]/float64(s.Length[s.ChosenNorm]) {
			s.ChosenNorm = i
		}
	}
}

// branches returns the branches of the item's choices after the tokens that they share.
func (s *scoring) branches(q *stages.Sequence) (all []stages.Branch) {
	for i, ids := range s.IDs {
		all = append(all, stages.Branch{Sequence: q, Tokens: ids[s.shared : len(ids)-1], Targets: ids[s.First[i]:]})
	}
	return all
}

// scorer computes the log-likelihoods of items.
type scorer struct {
	model *trained.Model
	items []scoring
}

func (s *scorer) run(ctx context.Context) error {
	batches := s.batches()
	largest := batches[0]
	for _, b := range batches {
		if tokensOf(b) > tokensOf(largest) {
			largest = b
		}
	}
	err := s.model.CheckMemory(fmt.Sprintf("%d tokens of choices at a time", tokensOf(largest)), 0,
		func(dry *tensorops.DryStream, st *stages.Stage) error {
			d, err := stages.NewDecoder(st)
			if err != nil {
				return err
			}
			return score(d, largest)
		})
	if err != nil {
		return err
	}
	stream := s.model.Device.NewStream("score")
	if s.model.Weights, err = s.model.Stage(stream); err != nil {
		return err
	}
	d, err := stages.NewDecoderOn(s.model.Weights, stream)
	if err != nil {
		return err
	}
	for _, b := range batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := score(d, b); err != nil {
			return err
		}
	}
	return nil
}

func tokensOf(batch []*scoring) (n int) {
	for _, s := range batch {
		n += s.rows() + s.shared
	}
	return n
}

// batches divides the items, in their order, into those that are scored together.
func (s *scorer) batches() (all [][]*scoring) {
	rows := 0
	for i := range s.items {
		it := &s.items[i]
		n := it.rows() + it.shared
		if len(all) == 0 || rows+n > limitRows {
			all, rows = append(all, nil), 0
		}
		all[len(all)-1] = append(all[len(all)-1], it)
		rows += n
	}
	return all
}

// score reads what the choices of each item share, then scores all choices.
func score(d *stages.Decoder, batch []*scoring) (err error) {
	var feeds []stages.Feed
	var branches []stages.Branch
	defer func() {
		for _, f := range feeds {
			f.Sequence.Close()
		}
	}()
	for _, it := range batch {
		var q *stages.Sequence
		if it.shared > 0 {
			if q, err = d.Add(it.shared); err != nil {
				return err
			}
			feeds = append(feeds, stages.Feed{Sequence: q, Tokens: it.IDs[0][:it.shared]})
		}
		branches = append(branches, it.branches(q)...)
	}
	if len(feeds) > 0 {
		if _, err := d.Next(feeds...); err != nil {
			return err
		}
	}
	sums, err := d.Score(branches...)
	if err != nil {
		return err
	}
	for _, it := range batch {
		sums = sums[copy(it.LogLikelihoods, sums):]
	}
	return nil
}
