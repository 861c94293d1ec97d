package corpus

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// openSamples opens data that are no text: of is cfg.Data, or that of other files.
func openSamples(cfg *config.Config, of config.Data) (*Data, error) {
	opened, err := plan.OpenSamples(cfg, of)
	if err != nil {
		return nil, unreadable(err)
	}
	return &Data{Samples: &opened, Fields: plan.SampleFields(opened)}, nil
}

// excluded returns the files of data.train that are only for validation.
func excluded(cfg *config.Config) ([]string, error) {
	files, err := data.Files(cfg.Data.Train)
	if err != nil {
		return nil, cfg.Errorf("data.train", "%w", unreadable(err))
	}
	_, both, err := plan.HeldOut(cfg, files)
	return both, unreadable(err)
}

// loadSamples opens them, and knows them by their content.
func loadSamples(cfg *config.Config, accept Accept) (c *Data, err error) {
	if c, err = openSamples(cfg, cfg.Data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	if len(cfg.Data.Labels) == 0 { // with them every name is read
		if c.Excluded, err = excluded(cfg); err != nil {
			return c, err
		}
		c.warnLeftOut(cfg, accept)
	}
	for _, of := range samples.CountClasses(*c.Samples) {
		c.Classes = append(c.Classes, of.String())
		if accept == nil { // a run that is resumed has said it
			c.Warnings = append(c.Warnings, of.Warnings()...)
		}
	}
	for _, part := range []struct {
		key string
		of  samples.Dataset
		to  func(id data.Identity)
	}{
		{"data.train", c.Samples.Train, func(id data.Identity) { c.Identity.Train = id }},
		{"data.val", c.Samples.Val, func(id data.Identity) { c.Identity.Val = &id }},
	} {
		if part.of == nil {
			continue
		}
		id, err := samples.Identity(part.of)
		if err != nil {
			return c, cfg.Errorf(part.key, "%w", unreadable(err))
		}
		part.to(id)
		if accept != nil {
			if err := accept(part.key, id); err != nil {
				return c, cfg.Errorf(part.key, "%w", err)
			}
		}
	}
	return c, nil
}

// TrainLen is the number of tokens, or of samples, to train on; 0 where a stream doesn't say.
func (c *Data) TrainLen() int64 {
	switch {
	case c.parts != nil:
		n := int64(0)
		for _, p := range c.parts {
			_, _, tokens := p.train.Size()
			n += tokens
		}
		return n
	case c.TrainRecords != nil:
		return c.TrainRecords.Tokens()
	case c.Samples == nil:
		return c.Train.Len()
	case c.Samples.Train != nil:
		return int64(c.Samples.Train.Len())
	}
	return 0
}

// ValLen is the number of tokens, or of samples, to validate on.
func (c *Data) ValLen() int64 {
	n := int64(0)
	for _, p := range c.parts {
		if p.val != nil {
			n += p.val.ValLen()
		}
	}
	switch {
	case c.parts != nil && c.ValRecords == nil && c.Val == nil:
		return n
	case c.ValRecords != nil:
		return c.ValRecords.Tokens()
	case c.Samples == nil && c.Val == nil:
		return 0
	case c.Samples == nil:
		return c.Val.Len()
	case c.Samples.Val != nil:
		return int64(c.Samples.Val.Len())
	}
	return 0
}

// Feed is what the loader actor reads, with its sizes.
type Feed struct {
	actors.Source
	Context int   // positions of a sequence; 1 of a sample
	Windows int   // of validation
	Epoch   int64 // windows, or samples, to train on; 0: not known
	Sets    []actors.EvalSet
}

// FeedOf makes it, for a run that resumes after a number of steps.
func FeedOf(c *Data, cfg *config.Config, step int64) (Feed, error) {
	windows := cfg.Run.EvalBatches * cfg.Batch.Sequences
	f, err := feedOf(c, cfg, step, windows)
	for i, set := range c.Sets {
		if err != nil {
			break
		}
		s := actors.EvalSet{Name: set.Name}
		if s.Data, err = set.source(cfg, windows); err != nil {
			err = cfg.Errorf(plan.EvalKey(i), "%w", err)
		}
		f.Sets = append(f.Sets, s)
	}
	return f, err
}

// feedOf validates on so many windows, as far as there are so many.
func feedOf(c *Data, cfg *config.Config, step int64, evalWindows int) (Feed, error) {
	if c.Samples != nil {
		return sampleFeed(c, cfg, step, evalWindows)
	}
	if c.TrainPacks != nil {
		s := newPackSource(c, cfg, evalWindows)
		return Feed{Source: s, Context: cfg.Model.Context, Windows: len(s.windows), Epoch: int64(s.train.Len())}, nil
	}
	if c.parts != nil {
		s, err := newPartSource(c, cfg, evalWindows)
		if err != nil {
			return Feed{}, err
		}
		return Feed{Source: s, Context: cfg.Model.Context, Windows: s.EvalWindows(), Epoch: c.epoch()}, nil
	}
	if c.TrainRecords != nil {
		if cfg.Preference.Loss != "" {
			return answerFeed(c, cfg, evalWindows), nil
		}
		s := newRecordSource(c, cfg, evalWindows)
		f := Feed{Source: s, Context: cfg.Model.Context, Windows: len(s.windows), Epoch: int64(s.train.Len())}
		if cfg.Distillation() != nil {
			f.Source = c.taughtSource(cfg, s)
		}
		return f, nil
	}
	if cfg.Distillation() != nil {
		return Feed{}, cfg.Errorf("distill.from", "%w", errNoRecords)
	}
	s, err := newSource(c, cfg, evalWindows)
	if err != nil {
		return Feed{}, err
	}
	f := Feed{Source: s, Context: cfg.Model.Context, Windows: len(s.windows), Epoch: s.epochs.Windows()}
	if cfg.Data.Packing == config.PackSplit {
		f.Source = &splitSource{s, c.trainBounds, c.valBounds}
	}
	if !cfg.Language() {
		f.Source = &textSamples{source: s, context: cfg.Model.Context}
	}
	return f, nil
}

func sampleFeed(c *Data, cfg *config.Config, step int64, evalWindows int) (Feed, error) {
	s := &sampleSource{data: *c.Samples, sequences: int64(cfg.Batch.Sequences)}
	for _, f := range c.Fields {
		s.names = append(s.names, f.Name)
	}
	var err error
	if s.train, err = c.Samples.Source(cfg.Run.Seed); err != nil {
		return Feed{}, cfg.Errorf("data.train", "%w", err)
	}
	if st := c.Samples.Stream; st != nil {
		if err := st.Start(step * s.sequences); err != nil {
			return Feed{}, cfg.Errorf("data.format", "%w", err)
		}
	}
	s.val = spreadOver(c.ValLen(), evalWindows)
	return Feed{Source: s, Context: 1, Windows: len(s.val), Epoch: c.TrainLen()}, nil
}

// sampleSource feeds the loader with samples.
type sampleSource struct {
	data      samples.Data
	train     samples.Source
	sequences int64    // in a step
	names     []string // of the fields
	val       []int    // samples to validate on
}

var errNoTokens = errors.New("the data has no tokens")

func (s *sampleSource) Train(int64, int, []int32, []int32) error { return errNoTokens }
func (s *sampleSource) EvalFill(int, []int32, []int32) error     { return errNoTokens }
func (s *sampleSource) EvalWindows() int                         { return len(s.val) }
func (s *sampleSource) EvalLen(int) int                          { return 1 }

func (s *sampleSource) TrainFields(step int64, first, count int, names []string) ([]tensorops.Array, error) {
	var batch []samples.Sample
	for i := range count {
		one, err := s.train.Sample((step-1)*s.sequences + int64(first+i))
		if err != nil {
			return nil, err
		}
		batch = append(batch, one)
	}
	if s.data.Train == nil {
		all, err := samples.Collate(s.train.Fields(), batch)
		return s.named(all, names, err)
	}
	all, err := samples.Batch(s.data.Train, batch)
	return s.named(all, names, err)
}

func (s *sampleSource) EvalFields(first, count int, names []string) ([]tensorops.Array, error) {
	var batch []samples.Sample
	for _, i := range s.val[first : first+count] {
		one, err := samples.At(s.data.Val, i)
		if err != nil {
			return nil, err
		}
		batch = append(batch, one)
	}
	all, err := samples.Batch(s.data.Val, batch)
	return s.named(all, names, err)
}

// named picks fields.
func (s *sampleSource) named(all []tensorops.Array, names []string, err error) (picked []tensorops.Array, _ error) {
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		i := slices.Index(s.names, name)
		if i < 0 {
			return nil, fmt.Errorf("%w: the data has no field %q; its fields are %q", stages.ErrInput, name, s.names)
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// textSamples are the windows of a text as samples, for families that are no language models.
type textSamples struct {
	*source
	context int
}

func (s *textSamples) EvalLen(int) int { return 1 }

func (s *textSamples) TrainFields(step int64, first, count int, names []string) ([]tensorops.Array, error) {
	return s.fields(first, count, names, func(i int, tokens, targets []int32) error {
		return s.Train(step, i, tokens, targets)
	})
}

func (s *textSamples) EvalFields(first, count int, names []string) ([]tensorops.Array, error) {
	return s.fields(first, count, names, s.EvalFill)
}

func (s *textSamples) fields(first, count int, names []string, fill func(i int, tokens, targets []int32) error) (picked []tensorops.Array,
	err error) {
	shape := []int{count, s.context}
	tokens, targets := tensorops.NewArray(tensorops.Int32, shape), tensorops.NewArray(tensorops.Int32, shape)
	for i := range count {
		if err := fill(first+i, tokens.Int[i*s.context:][:s.context], targets.Int[i*s.context:][:s.context]); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		switch name {
		case plan.TokensField:
			picked = append(picked, tokens)
		case plan.TargetsField:
			picked = append(picked, targets)
		default:
			return nil, fmt.Errorf("%w: a text has no field %q; its fields are %q and %q", stages.ErrInput, name, plan.TokensField,
				plan.TargetsField)
		}
	}
	return picked, nil
}
