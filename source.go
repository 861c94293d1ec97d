package troupe

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// corpora are the texts of a run as token ids.
type corpora struct {
	tokenizer  tokenizer.Tokenizer
	train, val data.Corpus
	identity   trainstate.Data
	excluded   []string // files that data.train names, and data.val too
	close      []data.Corpus
	kept       *tokenStore // where ids of texts are kept; nil: nowhere

	trainRecords, valRecords *data.Records // in place of texts: documents one by one
	warnings                 []string
	counts                   *DocumentCounts // of what is evaluated
	names                    int             // of special tokens in texts that were encoded now

	samples *samples.Data  // in place of texts
	fields  []stages.Field // of samples
	classes []string       // of each label, for people
}

// Close frees the texts.
func (c *corpora) Close() error {
	var errs []error
	for _, d := range c.close {
		errs = append(errs, d.Close())
	}
	if c.samples != nil && c.samples.Stream != nil {
		errs = append(errs, c.samples.Stream.Close())
	}
	return errors.Join(errs...)
}

// dataFiles finds the files that a configuration names. What it is validated on is not
// trained on, though data.train names it too: those are excluded.
func dataFiles(cfg *config.Config) (train, val, excluded []string, err error) {
	var errs []error
	found, err := data.Find(cfg.Data.Train)
	if err != nil {
		errs = append(errs, cfg.Errorf("data.train", "%w", unreadableData(err)))
	}
	if len(cfg.Data.Val) > 0 {
		if val, err = data.Files(cfg.Data.Val); err != nil {
			errs = append(errs, cfg.Errorf("data.val", "%w", unreadableData(err)))
		}
	}
	if len(errs) > 0 {
		return nil, nil, nil, errors.Join(errs...)
	}
	if _, excluded, err = data.Exclude(found.All(), val); err != nil {
		return nil, nil, nil, cfg.Errorf("data.train", "%w", unreadableData(err))
	}
	train = without(found.Files, excluded)
	if len(train) == 0 {
		return nil, nil, nil, cfg.Errorf("data.train", "every file that it names is named by data.val too, which leaves nothing to train on: %s", listed(excluded))
	}
	return train, val, excluded, nil
}

// warnLeftOut says which names are not read. A run that is resumed, which has something to accept, has said it.
func (c *corpora) warnLeftOut(cfg *config.Config, accept acceptFunc) {
	if accept == nil {
		c.warnings = append(c.warnings, append(leftOut("data.train", cfg.Data.Train, c.excluded), leftOut("data.val", cfg.Data.Val, nil)...)...)
	}
}

func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// leftOut says which of the names that a key leads to are not read, except excluded ones, which are said elsewhere.
func leftOut(key string, patterns, excluded []string) (warnings []string) {
	found, err := data.Find(patterns)
	if err != nil { // which whoever reads the files reports
		return nil
	}
	if again := without(found.Again, excluded); len(again) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: %d of the names that it leads to are links to, or other spellings of, files that it names too, and each file is read once: %s", key, len(again), listed(again)))
	}
	if n := len(found.Other); n > 0 {
		const most = 3
		some := strings.Join(found.Other[:min(most, n)], ", ")
		if n > most {
			some += fmt.Sprintf(", and %d more", n-most)
		}
		warnings = append(warnings, fmt.Sprintf("%s: %d of the names that it leads to are no files and are left out: %s", key, n, some))
	}
	return warnings
}

// listed names the first few files.
func listed(files []string) string {
	const most = 3
	var names []string
	for _, f := range files[:min(most, len(files))] {
		names = append(names, strconv.Quote(f))
	}
	if more := len(files) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// loadData reads the texts. talk is what the model's directory says of its text; stored is the tokenizer of the checkpoint that the
// run goes on from; nil: it is made from the training text. accept and kept may be nil.
func loadData(cfg *config.Config, stored tokenizer.Tokenizer, talk rundir.Talk, accept acceptFunc, kept *tokenStore) (c *corpora, err error) {
	if !cfg.Text() {
		return loadSamples(cfg, accept)
	}
	if cfg.Documents() {
		return loadDocuments(cfg, stored, talk, accept, kept)
	}
	c = &corpora{tokenizer: stored, kept: kept}
	if stored == nil && cfg.Data.Tokenizer == "bytes" {
		c.tokenizer = tokenizer.Bytes{}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	trainFiles, valFiles, excluded, err := dataFiles(cfg)
	if err != nil {
		return c, err
	}
	c.excluded = excluded
	c.warnLeftOut(cfg, accept)
	identify := func(key string, id *data.Identity) func(data.Identity) error {
		return func(is data.Identity) error {
			if *id = is; accept == nil {
				return nil
			}
			return accept(key, is)
		}
	}
	if c.train, err = c.read(cfg, trainFiles, identify("data.train", &c.identity.Train)); err != nil {
		return c, cfg.Errorf("data.train", "%w", err)
	}
	if len(valFiles) > 0 {
		c.identity.Val = &data.Identity{}
		if c.val, err = c.read(cfg, valFiles, identify("data.val", c.identity.Val)); err != nil {
			return c, cfg.Errorf("data.val", "%w", err)
		}
	} else if c.train, c.val, err = data.Split(c.train, cfg.Data.ValSplit, cfg.Data.ValFraction); err != nil {
		return c, cfg.Errorf(valKey(cfg), "%w", err)
	}
	c.warnNames(cfg, cfg.IsSet("data.special_tokens"))
	for _, part := range []struct {
		key, name string
		corpus    data.Corpus
	}{{"data.train", "training", c.train}, {valKey(cfg), "validation", c.val}} {
		if err := data.CheckLength(part.corpus.Len(), cfg.Model.Context); err != nil {
			return c, cfg.Errorf(part.key, "the %s text: %w", part.name, err)
		}
	}
	return c, nil
}

// warnNames says what is done with the names of special tokens in texts that were encoded now. chosen: a person
// has said that they are tokens.
func (c *corpora) warnNames(cfg *config.Config, chosen bool) {
	if plain := cfg.Data.SpecialTokens == config.SpecialAsText; c.names > 0 && (plain || !chosen) {
		c.warnings = append(c.warnings, namesWarning(c.names, "the data", plain))
	}
}

// valKey is the key that the validation text comes from.
func valKey(cfg *config.Config) string {
	if len(cfg.Data.Val) > 0 {
		return "data.val"
	}
	return "data.val_fraction"
}

// read makes a corpus of files, which it closes with the others, if accept takes their
// content. With a nil one nobody asks for it, and ids are not read for it.
func (c *corpora) read(cfg *config.Config, files []string, accept func(is data.Identity) error) (corpus data.Corpus, err error) {
	if cfg.IDBytes() > 0 {
		corpus, err = c.readIDs(files, vocabOf(cfg, c.tokenizer), cfg.IDBytes(), accept)
	} else {
		corpus, err = c.readText(cfg, files, accept)
	}
	if err != nil {
		return nil, unreadableData(err)
	}
	return corpus, nil
}

func (c *corpora) readIDs(files []string, vocab, idBytes int, accept func(is data.Identity) error) (data.Corpus, error) {
	ids, err := data.OpenIDs(files, vocab, idBytes)
	if err != nil {
		return nil, err
	}
	c.close = append(c.close, ids)
	if accept == nil {
		return ids, nil
	}
	id, err := ids.Identity()
	if err != nil {
		return nil, err
	}
	return ids, accept(id)
}

func (c *corpora) readText(cfg *config.Config, files []string, accept func(is data.Identity) error) (data.Corpus, error) {
	read := data.ReadText
	if cfg.Data.InvalidUTF8 == config.UTF8OrBytes {
		read = data.ReadBytes
	}
	text, err := read(files)
	if err != nil {
		return nil, err
	}
	if accept != nil {
		if err := accept(text.Identity()); err != nil {
			return nil, err
		}
	}
	if c.tokenizer == nil {
		if c.tokenizer, err = tokenizer.BuildChars(text.Bytes()); err != nil {
			return nil, text.Locate(err)
		}
	}
	plain := cfg.Data.SpecialTokens == config.SpecialAsText
	corpus, fresh, err := c.kept.corpus(text, c.tokenizer, plain)
	if err != nil {
		return nil, err
	}
	if fresh {
		c.names += c.tokenizer.SpecialNames(text.Bytes())
	}
	c.close = append(c.close, corpus)
	return corpus, nil
}

// maker is the tokenizer that made the ids, to be stored with the model; nil when
// it is not known, as with ids that another program has written.
func (c *corpora) maker(cfg *config.Config, vocab int) tokenizer.Tokenizer {
	if c.tokenizer == nil || cfg.IDBytes() > 0 && c.tokenizer.Vocab() != vocab {
		return nil
	}
	return c.tokenizer
}

// vocabOf is the size of the vocabulary: the configuration's, else the
// tokenizer's.
func vocabOf(cfg *config.Config, t tokenizer.Tokenizer) int {
	if cfg.Model.Vocab > 0 || t == nil {
		return cfg.Model.Vocab
	}
	return t.Vocab()
}

// checkVocab refuses a model that has no row for some of the tokenizer's ids.
func checkVocab(cfg *config.Config, t tokenizer.Tokenizer) error {
	if v := cfg.Model.Vocab; t != nil && v > 0 && v < t.Vocab() && cfg.IDBytes() == 0 {
		return cfg.Errorf("model.vocab", "a vocabulary of %d is smaller than the %d ids of the %s tokenizer; set it to at least that or leave it out", v, t.Vocab(), t.Name())
	}
	return nil
}

// source feeds the loader actor. Everything it returns is a function of its
// arguments.
type source struct {
	corpora   *corpora
	epochs    data.Epochs
	sequences int64         // in a step
	windows   []data.Window // of validation
}

func newSource(c *corpora, cfg *config.Config) (*source, error) {
	context := cfg.Model.Context
	epochs, err := data.NewEpochs(cfg.Run.Seed, c.train.Len(), context)
	if err != nil {
		return nil, cfg.Errorf("data.train", "%w", err)
	}
	s := &source{corpora: c, epochs: epochs, sequences: int64(cfg.Batch.Sequences)}
	offsets, err := data.ValWindows(c.val, context, cfg.Run.EvalBatches*cfg.Batch.Sequences)
	if err != nil {
		return nil, cfg.Errorf(valKey(cfg), "%w", err)
	}
	for _, off := range offsets {
		s.windows = append(s.windows, data.Window{Off: off, Len: context})
	}
	return s, nil
}

func (s *source) Train(step int64, index int, tokens, targets []int32) error {
	_, off := s.epochs.Window((step-1)*s.sequences + int64(index))
	return data.Fill(s.corpora.train, off, tokens, targets)
}

func (s *source) EvalWindows() int      { return len(s.windows) }
func (s *source) EvalLen(index int) int { return s.windows[index].Len }

func (s *source) EvalFill(index int, tokens, targets []int32) error {
	return data.Fill(s.corpora.val, s.windows[index].Off, tokens, targets)
}
