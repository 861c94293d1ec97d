package troupe

import (
	"errors"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data"
	"github.com/troupe-ml/troupe/tokenizer"
)

// corpora are the texts of a run as token ids.
type corpora struct {
	tokenizer  tokenizer.Tokenizer
	train, val data.Corpus
	close      []data.Corpus
}

// Close frees the texts.
func (c *corpora) Close() error {
	var errs []error
	for _, d := range c.close {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// loadData reads the texts. stored is the tokenizer of the checkpoint that the
// run goes on from; nil: it is made from the training text.
func loadData(cfg *config.Config, stored tokenizer.Tokenizer) (*corpora, error) {
	c := &corpora{tokenizer: stored}
	if stored == nil && cfg.Data.Tokenizer == "bytes" {
		c.tokenizer = tokenizer.Bytes{}
	}
	train, err := c.open(cfg, "data.train", cfg.Data.Train)
	if err != nil {
		return nil, err
	}
	c.train = train
	if len(cfg.Data.Val) > 0 {
		if c.val, err = c.open(cfg, "data.val", cfg.Data.Val); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	} else if c.train, c.val, err = data.Split(train, cfg.Data.ValFraction); err != nil {
		return nil, errors.Join(cfg.Errorf(valKey(cfg), "%w", err), c.Close())
	}
	for _, part := range []struct {
		key, name string
		corpus    data.Corpus
	}{{"data.train", "training", c.train}, {valKey(cfg), "validation", c.val}} {
		if err := data.CheckLength(part.corpus.Len(), cfg.Model.Context); err != nil {
			return nil, errors.Join(cfg.Errorf(part.key, "the %s text: %w", part.name, err), c.Close())
		}
	}
	return c, nil
}

// valKey is the key that the validation text comes from.
func valKey(cfg *config.Config) string {
	if len(cfg.Data.Val) > 0 {
		return "data.val"
	}
	return "data.val_fraction"
}

// open makes a corpus of the files that patterns match; key is where they come
// from.
func (c *corpora) open(cfg *config.Config, key string, patterns []string) (data.Corpus, error) {
	corpus, err := c.files(cfg, patterns)
	if err != nil {
		return nil, cfg.Errorf(key, "%w", err)
	}
	return corpus, nil
}

func (c *corpora) files(cfg *config.Config, patterns []string) (data.Corpus, error) {
	files, err := data.Files(patterns)
	if err != nil {
		return nil, err
	}
	corpus, err := c.read(cfg, files)
	if err != nil {
		return nil, err
	}
	c.close = append(c.close, corpus)
	return corpus, nil
}

func (c *corpora) read(cfg *config.Config, files []string) (data.Corpus, error) {
	if cfg.Data.Format == "uint16" {
		return data.OpenUint16(files, vocabOf(cfg, c.tokenizer))
	}
	text, err := data.ReadText(files)
	if err != nil {
		return nil, err
	}
	if c.tokenizer == nil {
		if c.tokenizer, err = tokenizer.BuildChars(text.Bytes()); err != nil {
			return nil, text.Locate(err)
		}
	}
	return text.Encode(c.tokenizer)
}

// maker is the tokenizer that made the ids, to be stored with the model; nil when
// it is not known, as with ids that another program has written.
func (c *corpora) maker(cfg *config.Config, vocab int) tokenizer.Tokenizer {
	if cfg.Data.Format == "uint16" && c.tokenizer.Vocab() != vocab {
		return nil
	}
	return c.tokenizer
}

// vocabOf is the size of the vocabulary: the configuration's, else the
// tokenizer's.
func vocabOf(cfg *config.Config, t tokenizer.Tokenizer) int {
	if cfg.Model.Vocab > 0 {
		return cfg.Model.Vocab
	}
	return t.Vocab()
}

// checkVocab refuses a model that has no row for some of the tokenizer's ids.
func checkVocab(cfg *config.Config, t tokenizer.Tokenizer) error {
	if v := cfg.Model.Vocab; v > 0 && v < t.Vocab() && cfg.Data.Format != "uint16" {
		return cfg.Errorf("model.vocab", "a vocabulary of %d is smaller than the %d ids of the %s tokenizer; set it to at least that or leave it out", v, t.Vocab(), t.Name())
	}
	return nil
}

// source feeds the loader actor. Everything it returns is a function of its
// arguments.
type source struct {
	corpora *corpora
	seed    uint64
	context int
	windows []data.Window // of validation
}

func newSource(c *corpora, cfg *config.Config) (*source, error) {
	s := &source{corpora: c, seed: cfg.Run.Seed, context: cfg.Model.Context}
	offsets, err := data.ValWindows(c.val.Len(), s.context, cfg.Run.EvalBatches*cfg.Batch.Sequences)
	if err != nil {
		return nil, cfg.Errorf(valKey(cfg), "%w", err)
	}
	for _, off := range offsets {
		s.windows = append(s.windows, data.Window{Off: off, Len: s.context})
	}
	return s, nil
}

func (s *source) Train(step int64, index int, tokens, targets []int32) error {
	off := data.TrainWindow(s.seed, int(step), index, s.corpora.train.Len(), s.context)
	return data.Fill(s.corpora.train, off, tokens, targets)
}

func (s *source) EvalWindows() int      { return len(s.windows) }
func (s *source) EvalLen(index int) int { return s.windows[index].Len }

func (s *source) EvalFill(index int, tokens, targets []int32) error {
	return data.Fill(s.corpora.val, s.windows[index].Off, tokens, targets)
}
