package corpus

import (
	"errors"
	"fmt"
	"io"
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
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Data are the data of a run or an evaluation: texts as token ids, documents, or samples.
type Data struct {
	Tokenizer  tokenizer.Tokenizer
	Train, Val data.Corpus
	Identity   trainstate.Data
	Excluded   []string // files that both data.train and data.val match: only for validation
	close      []io.Closer
	kept       *TokenStore // where ids of texts are kept; nil: nowhere

	TrainRecords, ValRecords *data.Records // in place of texts: documents one by one
	TrainPacks, ValPacks     *data.Packs   // sequences of records; nil: each record is one
	trainBounds, valBounds   data.Bounds   // where documents start in Train and Val, if these are joined documents
	Packing                  *event.Packing
	Warnings                 []string
	Counts                   *DocumentCounts  // of what is evaluated
	Documents                *event.Documents // what is trained on; nil: no documents that are learned in part
	conversations            bool             // documents are rendered with the chat template
	Reference                *Reference       // of answers; nil: the loss needs none
	Teacher                  *Teacher         // of TrainRecords; nil: there is none
	parts                    []*part          // in place of Train and TrainRecords: sources, or a stream
	mix                      *mixture         // of parts
	names                    int              // of special tokens in texts that were encoded now

	Sets []EvalSet // further validation sets

	Samples *samples.Data  // in place of texts
	Fields  []stages.Field // of samples
	Classes []string       // of each label, for people
}

// Close frees the texts.
func (c *Data) Close() error {
	var errs []error
	for _, d := range c.close {
		errs = append(errs, d.Close())
	}
	for _, set := range c.Sets {
		errs = append(errs, set.Data.Close())
	}
	for _, p := range c.parts {
		if p.train != nil {
			errs = append(errs, p.train.Close())
		}
	}
	if c.Teacher != nil && c.Teacher.Tokens != nil {
		errs = append(errs, c.Teacher.Tokens.Close())
	}
	if c.Samples != nil && c.Samples.Stream != nil {
		errs = append(errs, c.Samples.Stream.Close())
	}
	return errors.Join(errs...)
}

// HeldBy names the keys whose files are not trained on.
func HeldBy(cfg *config.Config) string {
	switch {
	case len(cfg.Eval) == 0:
		return "data.val"
	case len(cfg.Data.Val) == 0:
		return "[[eval]]"
	}
	return "data.val or [[eval]]"
}

// warnLeftOut warns about matches that are not read. A resumed run, which has an accept, has warned at its start.
func (c *Data) warnLeftOut(cfg *config.Config, accept Accept) {
	if accept == nil {
		c.Warnings = append(c.Warnings, append(leftOut("data.train", cfg.Data.Train, c.Excluded), leftOut("data.val", cfg.Data.Val, nil)...)...)
	}
}

func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// leftOut returns warnings about matches of a key that are not read, except for excluded ones.
func leftOut(key string, patterns, excluded []string) (warnings []string) {
	found, err := data.Find(patterns)
	if err != nil { // the reader of the files reports it
		return nil
	}
	if again := without(found.Again, excluded); len(again) > 0 {
		warnings = append(warnings,
			fmt.Sprintf("%s: %d of the matches are links to, or other names of, files that it matches, too; each file is read once: %s", key,
				len(again), Listed(again)))
	}
	if n := len(found.Other); n > 0 {
		const most = 3
		some := strings.Join(found.Other[:min(most, n)], ", ")
		if n > most {
			some += fmt.Sprintf(", and %d more", n-most)
		}
		warnings = append(warnings, fmt.Sprintf("%s: %d of the matches are not files and are skipped: %s", key, n, some))
	}
	return warnings
}

// Listed returns the names of the first few files.
func Listed(files []string) string {
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

// Load reads the data. talk is what the model's directory says about texts. stored is the tokenizer of the checkpoint that the
// run resumes from; nil: it is made from the training text. accept and kept may be nil.
func Load(cfg *config.Config, stored tokenizer.Tokenizer, talk rundir.Talk, accept Accept, kept *TokenStore) (*Data, error) {
	c, err := load(cfg, stored, talk, accept, kept)
	if err != nil {
		return c, err
	}
	if err := c.loadEvalSets(cfg, talk, accept); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// load reads the data without the sets of [[eval]].
func load(cfg *config.Config, stored tokenizer.Tokenizer, talk rundir.Talk, accept Accept, kept *TokenStore) (c *Data, err error) {
	if !cfg.Text() {
		return loadSamples(cfg, accept)
	}
	if cfg.Documents() && (cfg.Data.Stream || len(cfg.Data.Source) > 0) {
		return loadParts(cfg, stored, talk, accept, kept)
	}
	if cfg.Documents() {
		return loadDocuments(cfg, stored, talk, accept, kept)
	}
	c = &Data{Tokenizer: stored, kept: kept}
	if stored == nil && cfg.Data.Tokenizer == "bytes" {
		c.Tokenizer = tokenizer.Bytes{}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	trainFiles, valFiles, excluded, err := Files(cfg)
	if err != nil {
		return c, err
	}
	how := readingOf(cfg, c.Tokenizer)
	c.Excluded = excluded
	c.warnLeftOut(cfg, accept)
	if accept == nil && !cfg.IsSet("data.format") && slices.ContainsFunc(trainFiles, isJSONLines) {
		c.Warnings = append(c.Warnings,
			"data.train has JSON lines (.jsonl), which are read as raw text: to train on the documents in them, set data.format = \"documents\"")
	}
	identify := func(key string, id *data.Identity) func(data.Identity) error {
		return func(is data.Identity) error {
			if *id = is; accept == nil {
				return nil
			}
			return accept(key, is)
		}
	}
	if c.Train, err = c.read(how, trainFiles, identify("data.train", &c.Identity.Train)); err != nil {
		return c, cfg.Errorf("data.train", "%w", err)
	}
	if len(valFiles) > 0 {
		c.Identity.Val = &data.Identity{}
		if c.Val, err = c.read(how, valFiles, identify("data.val", c.Identity.Val)); err != nil {
			return c, cfg.Errorf("data.val", "%w", err)
		}
	} else if cfg.HasMainSet() {
		if c.Train, c.Val, err = data.Split(c.Train, cfg.Data.ValSplit, cfg.Data.ValFraction); err != nil {
			return c, cfg.Errorf(valKey(cfg), "%w", err)
		}
	}
	c.warnNames(cfg.Data.SpecialTokens, cfg.IsSet("data.special_tokens"))
	for _, part := range []struct {
		key, name string
		corpus    data.Corpus
	}{{"data.train", "training", c.Train}, {valKey(cfg), "validation", c.Val}} {
		if part.corpus == nil {
			continue
		}
		if err := data.CheckLength(part.corpus.Len(), cfg.Model.Context); err != nil {
			return c, cfg.Errorf(part.key, "the %s text: %w", part.name, err)
		}
	}
	return c, nil
}

// warnNames warns about names of special tokens in texts that were encoded now. special is
// data.special_tokens. chosen: the user has set it.
func (c *Data) warnNames(special string, chosen bool) {
	if plain := special == config.SpecialAsText; c.names > 0 && (plain || !chosen) {
		c.Warnings = append(c.Warnings, namesWarning(c.names, "the data", plain))
	}
}

// valKey is the key of the validation text.
func valKey(cfg *config.Config) string {
	if len(cfg.Data.Val) > 0 {
		return "data.val"
	}
	return "data.val_fraction"
}

// read opens a corpus of files if accept accepts their
// content. c closes it. A nil accept accepts everything, and ids are not read for it.
func (c *Data) read(how reading, files []string, accept func(is data.Identity) error) (corpus data.Corpus, err error) {
	if how.idBytes > 0 {
		corpus, err = c.readIDs(files, how.vocab, how.idBytes, accept)
	} else {
		corpus, err = c.readText(how, files, accept)
	}
	if err != nil {
		return nil, unreadable(err)
	}
	return corpus, nil
}

func (c *Data) readIDs(files []string, vocab, idBytes int, accept func(is data.Identity) error) (data.Corpus, error) {
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

func (c *Data) readText(how reading, files []string, accept func(is data.Identity) error) (data.Corpus, error) {
	read := data.ReadText
	if how.invalidUTF8 == config.UTF8OrBytes {
		read = data.ReadBytes
	}
	var text *data.Text
	open := func() (_ *data.Text, err error) {
		if text == nil {
			text, err = read(files)
		}
		return text, err
	}
	if c.Tokenizer == nil { // it is made from the text
		if _, err := open(); err != nil {
			return nil, err
		}
		if accept != nil {
			id, err := text.Identity()
			if err == nil {
				err = accept(id)
			}
			if err != nil {
				return nil, err
			}
			accept = nil
		}
		var err error
		if c.Tokenizer, err = tokenizer.BuildChars(text.Bytes()); err != nil {
			return nil, text.Locate(err)
		}
	}
	corpus, err := c.kept.corpus(files, accept, open, c.Tokenizer, how.special == config.SpecialAsText,
		func(text *data.Text) { c.names += c.Tokenizer.SpecialNames(text.Bytes()) })
	if err != nil {
		return nil, err
	}
	c.close = append(c.close, corpus)
	return corpus, nil
}

// Maker returns the tokenizer of the ids, to store it with the model. It is nil if
// it is not known, such as for ids that another program has written.
func (c *Data) Maker(cfg *config.Config, vocab int) tokenizer.Tokenizer {
	if c.Tokenizer == nil || cfg.IDBytes() > 0 && c.Tokenizer.Vocab() != vocab {
		return nil
	}
	return c.Tokenizer
}

// VocabOf returns the size of the vocabulary: that of the configuration, else that of the
// tokenizer.
func VocabOf(cfg *config.Config, t tokenizer.Tokenizer) int {
	if cfg.Model.Vocab > 0 || t == nil {
		return cfg.Model.Vocab
	}
	return t.Vocab()
}

// CheckVocab rejects a vocabulary that is smaller than the tokenizer's.
func CheckVocab(cfg *config.Config, t tokenizer.Tokenizer) error {
	if v := cfg.Model.Vocab; t != nil && v > 0 && v < t.Vocab() && cfg.IDBytes() == 0 {
		return cfg.Errorf("model.vocab",
			"%d is less than the %d ids of the %s tokenizer; set it to at least that, or leave it out", v, t.Vocab(), t.Name())
	}
	return nil
}
