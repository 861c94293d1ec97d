package troupe

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

// openSamples opens data that are no text.
func openSamples(cfg *config.Config) (*corpora, error) {
	opened, err := plan.OpenSamples(cfg)
	if err != nil {
		return nil, unreadableData(err)
	}
	return &corpora{samples: &opened, fields: plan.SampleFields(opened)}, nil
}

// loadSamples opens them, and knows them by their content.
func loadSamples(cfg *config.Config, accept acceptFunc) (c *corpora, err error) {
	if c, err = openSamples(cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	if len(cfg.Data.Labels) == 0 { // with them every name is read
		c.warnLeftOut(cfg, accept)
	}
	for _, of := range samples.CountClasses(*c.samples) {
		c.classes = append(c.classes, of.String())
		if accept == nil { // a run that is resumed has said it
			c.warnings = append(c.warnings, of.Warnings()...)
		}
	}
	for _, part := range []struct {
		key string
		of  samples.Dataset
		to  func(id data.Identity)
	}{
		{"data.train", c.samples.Train, func(id data.Identity) { c.identity.Train = id }},
		{"data.val", c.samples.Val, func(id data.Identity) { c.identity.Val = &id }},
	} {
		if part.of == nil {
			continue
		}
		id, err := samples.Identity(part.of)
		if err != nil {
			return c, cfg.Errorf(part.key, "%w", unreadableData(err))
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

// trainLen is the number of tokens, or of samples, to train on; 0 where a stream doesn't say.
func (c *corpora) trainLen() int64 {
	switch {
	case c.trainRecords != nil:
		return c.trainRecords.Tokens()
	case c.samples == nil:
		return c.train.Len()
	case c.samples.Train != nil:
		return int64(c.samples.Train.Len())
	}
	return 0
}

func (c *corpora) valLen() int64 {
	switch {
	case c.valRecords != nil:
		return c.valRecords.Tokens()
	case c.samples == nil:
		return c.val.Len()
	case c.samples.Val != nil:
		return int64(c.samples.Val.Len())
	}
	return 0
}

// feed is what the loader reads, with what is told of it.
type feed struct {
	actors.Source
	context int   // positions of a sequence; 1 of a sample
	windows int   // of validation
	epoch   int64 // windows, or samples, to train on; 0: not known
}

// feedOf makes it, for a run that goes on after a number of steps.
func feedOf(c *corpora, cfg *config.Config, step int64) (feed, error) {
	if c.samples != nil {
		return sampleFeed(c, cfg, step)
	}
	if c.trainRecords != nil {
		s := newRecordSource(c, cfg)
		return feed{Source: s, context: cfg.Model.Context, windows: len(s.windows), epoch: int64(s.train.Len())}, nil
	}
	s, err := newSource(c, cfg)
	if err != nil {
		return feed{}, err
	}
	f := feed{Source: s, context: cfg.Model.Context, windows: len(s.windows), epoch: s.epochs.Windows()}
	if !cfg.Language() {
		f.Source = &textSamples{source: s, context: cfg.Model.Context}
	}
	return f, nil
}

func sampleFeed(c *corpora, cfg *config.Config, step int64) (feed, error) {
	s := &sampleSource{data: *c.samples, sequences: int64(cfg.Batch.Sequences)}
	for _, f := range c.fields {
		s.names = append(s.names, f.Name)
	}
	var err error
	if s.train, err = c.samples.Source(cfg.Run.Seed); err != nil {
		return feed{}, cfg.Errorf("data.train", "%w", err)
	}
	if st := c.samples.Stream; st != nil {
		if err := st.Start(step * s.sequences); err != nil {
			return feed{}, cfg.Errorf("data.format", "%w", err)
		}
	}
	n, want := int(c.valLen()), cfg.Run.EvalBatches*cfg.Batch.Sequences
	for i := range min(n, want) {
		s.val = append(s.val, i*n/min(n, want)) // from all over it
	}
	return feed{Source: s, context: 1, windows: len(s.val), epoch: c.trainLen()}, nil
}

// sampleSource feeds the loader with samples.
type sampleSource struct {
	data      samples.Data
	train     samples.Source
	sequences int64    // in a step
	names     []string // of the fields
	val       []int    // samples to validate on
}

var errNoTokens = errors.New("the data have no tokens")

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
			return nil, fmt.Errorf("%w: the data have no field %q, but %q", stages.ErrInput, name, s.names)
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

func (s *textSamples) fields(first, count int, names []string, fill func(i int, tokens, targets []int32) error) (picked []tensorops.Array, err error) {
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
			return nil, fmt.Errorf("%w: a text has no field %q, but %q and %q", stages.ErrInput, name, plan.TokensField, plan.TargetsField)
		}
	}
	return picked, nil
}
