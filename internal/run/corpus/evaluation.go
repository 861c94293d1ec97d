package corpus

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// Model describes the model to the functions that read data for an evaluation.
type Model struct {
	Checkpoint  *checkpoint.Checkpoint
	Config      stages.Config
	Tokenizer   tokenizer.Tokenizer   // nil: not known
	NoTokenizer error                 // why it is not known
	Text        func() (*Text, error) // called if there is a tokenizer
}

// EvalOptions say which text to evaluate and how to read it. "" means as in the model's run.
type EvalOptions struct {
	Data          []string // files or globs; none: a validation set of the run that the model is from
	Set           string   // the name of the set; "": the one that decides which checkpoint is the best
	Format        string
	TooLong       string // "": "cut"
	InvalidUTF8   string
	SpecialTokens string
	Fields        []string // see config.Data; none: as in the run
	Context       int      // tokens of a window
}

// reading is how files become token ids.
type reading struct {
	format      string
	guessed     bool // the format is from the names of the files
	idBytes     int  // of a stored id; 0: the files are text
	vocab       int  // of stored ids
	invalidUTF8 string
	special     string
	fields      []string
	tooLong     string
	packing     string
	context     int
}

// readingOf returns how a configuration reads its data with a tokenizer.
func readingOf(cfg *config.Config, tok tokenizer.Tokenizer) reading {
	return reading{format: cfg.Data.Format, idBytes: cfg.IDBytes(), vocab: VocabOf(cfg, tok), invalidUTF8: cfg.Data.InvalidUTF8,
		special: cfg.Data.SpecialTokens, fields: cfg.Data.Fields, tooLong: cfg.Data.TooLong, packing: cfg.Data.Packing,
		context: cfg.Model.Context}
}

func (r reading) documents() bool { return r.format == "documents" }

// reading returns how to read a text: as the options say, else as the run of cfg did. cfg is nil if there was no run.
func (m Model) reading(o EvalOptions, cfg *config.Config) (r reading, err error) {
	if cfg != nil {
		r = readingOf(cfg, m.Tokenizer)
	}
	switch f := o.Format; {
	case f == "" && r.format != "documents" && jsonLines(o.Data):
		r.format, r.idBytes, r.guessed = "documents", 0, true
	case f == "":
	case len(o.Data) == 0 && f != r.format:
		return r, fmt.Errorf("%w: the format is %q, but the run's data has the format %q; name files of that format, or leave the format out",
			plan.ErrOptions, f,
			r.format)
	default:
		r.format, r.idBytes = f, (&config.Config{Data: config.Data{Format: f}}).IDBytes()
	}
	if o.TooLong != "" && !r.documents() {
		return r, fmt.Errorf("%w: too_long (%s) is only for the format documents, but the format is %q; leave too_long out, or set the format to documents", plan.ErrOptions, o.TooLong, r.format)
	}
	r.tooLong, r.vocab, r.context = o.TooLong, m.Config.Vocab, o.Context
	if r.tooLong == "" {
		r.tooLong = "cut"
	}
	if o.InvalidUTF8 != "" {
		r.invalidUTF8 = o.InvalidUTF8
	}
	if o.SpecialTokens != "" {
		r.special = o.SpecialTokens
	}
	if len(o.Fields) > 0 {
		if _, err := config.DocumentFields(o.Fields); err != nil {
			return r, fmt.Errorf("%w: %w", plan.ErrOptions, err)
		}
		r.fields = o.Fields
	}
	if len(r.fields) > 0 && !r.documents() {
		return r, fmt.Errorf("%w: fields (%s) are only for the format documents, but the format is %q; leave them out, or set the format to documents",
			plan.ErrOptions, strings.Join(r.fields, ", "), r.format)
	}
	if m.Tokenizer == nil && r.idBytes == 0 {
		const otherwise = "without a tokenizer, only token ids (format uint16) can be evaluated"
		if m.NoTokenizer != nil {
			return r, fmt.Errorf("%s: %w; %s", m.Checkpoint.Dir(), m.NoTokenizer, otherwise)
		}
		return r, fmt.Errorf("%s has no %s; %s", m.Checkpoint.Dir(), rundir.TokensFile, otherwise)
	}
	return r, nil
}

// namedFiles finds files of documents: of a dataset those of a split to validate on.
func namedFiles(patterns []string) ([]string, error) {
	return filesOfSet(&config.Config{Data: config.Data{Format: "documents", Split: data.SplitTrain}}, patterns)
}

// jsonLines reports whether all files that patterns match are JSON lines by their names.
func jsonLines(patterns []string) bool {
	files, err := namedFiles(patterns) // the reader reports the error
	return err == nil && len(files) > 0 && !slices.ContainsFunc(files, func(name string) bool { return !isJSONLines(name) })
}

// isJSONLines reports whether a file has the extension of JSON lines, or of a table.
func isJSONLines(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return ext == ".jsonl" || ext == ".ndjson" || ext == ".parquet"
}

// LoadEval reads a text for the evaluation of a language model, as Val or ValRecords.
func LoadEval(m Model, o EvalOptions) (_ *Data, err error) {
	cfg, err := StoredConfig(m.Checkpoint)
	if err != nil {
		return nil, err
	}
	if cfg == nil && len(o.Data) == 0 {
		return nil, fmt.Errorf("%s has no run configuration, so its validation text is not known; name a text", m.Checkpoint.Dir())
	}
	nth := -1
	if len(o.Data) == 0 {
		if nth, err = setNumber(cfg, o.Set); err != nil {
			return nil, err
		}
	}
	how, err := m.reading(o, setConfig(cfg, nth))
	if err != nil {
		return nil, err
	}
	c := &Data{Tokenizer: m.Tokenizer}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if len(o.Data) == 0 {
		err = m.validationText(c, cfg, nth, how)
	} else {
		err = m.namedText(c, o.Data, how)
	}
	if err != nil {
		return nil, err
	}
	c.warnNames(how.special, true)
	return c, nil
}

// StoredConfig returns the configuration of the run that wrote a checkpoint; nil: no run did.
func StoredConfig(ckpt *checkpoint.Checkpoint) (*config.Config, error) {
	stored, err := ckpt.File(rundir.ConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cfg, err := config.ParseStored(rundir.ConfigFile, stored)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ckpt.Dir(), err)
	}
	return cfg, nil
}

func (m Model) namedText(c *Data, names []string, how reading) error {
	files, err := data.Files(names)
	if how.documents() {
		files, err = namedFiles(names)
	}
	c.Warnings = leftOut("the data", names, nil)
	switch {
	case err != nil:
	case how.documents():
		return m.documents(c, how, files, nil, 0)
	default:
		c.Val, err = c.read(how, files, nil)
	}
	return unreadable(err)
}

// documents reads documents to evaluate: all of the files, or if fraction is not 0 those that a run validates on.
func (m Model) documents(c *Data, how reading, files []string, accept func(is data.Identity) error, fraction float64) error {
	said, err := m.Text()
	if err != nil {
		return err
	}
	r, err := newDocumentReader(m.Tokenizer, said.Talk, how.special, how.fields)
	if err != nil {
		return err
	}
	if how.guessed {
		r.hint = " (JSON lines are read as documents; for the raw text use the format text)"
	}
	docs, err := c.documents(files, accept, r)
	if err == nil && fraction > 0 {
		_, docs, err = splitDocuments(docs, fraction)
	}
	if err != nil {
		return err
	}
	c.Warnings = append(c.Warnings, append(said.Warnings(), r.warnings("the data", true)...)...)
	if allText(docs) && how.packing != config.PackFirstFit {
		var bounds data.Bounds
		if c.Val, bounds = docs.Joined(); how.packing == config.PackSplit {
			c.valBounds = bounds
		}
		return nil
	}
	var cut DocumentCounts
	c.ValRecords, cut, err = fit(docs, how.context, how.tooLong)
	c.Counts, c.Warnings = &cut, append(c.Warnings, cut.warnings(how.context)...)
	return err
}

// EvalFeed returns a feed that reads every token of Val, or every record of ValRecords, once, in windows of context
// tokens. targets is the number of tokens that are predicted.
func (c *Data) EvalFeed(context int) (f Feed, targets int64) {
	f.Context = context
	if c.ValRecords != nil {
		all := make([]int, c.ValRecords.Len())
		for i := range all {
			all[i] = i
		}
		f.Source, targets = &recordSource{val: c.ValRecords, windows: all}, c.ValRecords.Targets()
	} else {
		s := &source{val: c.Val, windows: data.Sequential(c.Val, context)}
		f.Source, targets = s, c.Val.Len()-int64(len(data.Pieces(c.Val)))
		if c.valBounds != nil { // as the run validates
			f.Source, targets = &splitSource{source: s, valBounds: c.valBounds}, c.Val.Len()-int64(len(c.valBounds))
		}
	}
	f.Windows = f.EvalWindows()
	return f, targets
}

// LoadSamples opens samples for a model and returns the configuration of the model's run. The files are
// read like those of the run; without files, it opens the run's validation data. OfSet returns each of its sets.
func LoadSamples(m Model, files []string) (*Data, *config.Config, error) {
	cfg, err := StoredConfig(m.Checkpoint)
	if err == nil && cfg == nil {
		err = fmt.Errorf("%s has no %[2]s, so the format of its samples is not known", m.Checkpoint.Dir(), rundir.ConfigFile)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(files) > 0 {
		c, err := m.namedSamples(cfg, files)
		return c, cfg, err
	}
	c, err := Load(cfg, m.Tokenizer, rundir.Talk{}, nil, nil)
	if err != nil {
		return nil, cfg, err
	}
	if c.Fields != nil {
		err = plan.SameFields(m.Config.Fields, c.Fields)
	}
	if err != nil {
		return nil, cfg, errors.Join(fmt.Errorf("%s: %w", m.Checkpoint.Dir(), err), c.Close())
	}
	return c, cfg, nil
}

// namedSamples opens files that are read like the run's data. The run's own files need not exist.
func (m Model) namedSamples(cfg *config.Config, files []string) (c *Data, err error) {
	if cfg.Text() {
		c = &Data{Tokenizer: m.Tokenizer}
		if files, err = data.Files(files); err == nil {
			c.Val, err = c.read(readingOf(cfg, m.Tokenizer), files, nil)
			c.Train = c.Val
		}
	} else {
		of := cfg.Data
		of.Train, of.Val, of.ValFraction = files, nil, 0
		for _, f := range m.Config.Fields {
			if f.Classes > 0 { // the same classes with the same ids, even if some do not occur
				of.Classes, of.ClassNames = f.Classes, f.Names
			}
		}
		alone := *cfg
		alone.Eval = nil // its files count here
		if c, err = openSamples(&alone, of); err == nil {
			err = plan.SameFields(m.Config.Fields, c.Fields)
			c.Samples.Val = c.Samples.Train
		}
	}
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, fmt.Errorf("%s: %w", m.Checkpoint.Dir(), unreadable(err))
	}
	return c, nil
}

// ForwardFeed returns a feed of all samples of the validation data.
func (c *Data) ForwardFeed(cfg *config.Config) (Feed, error) {
	return feedOf(c, cfg, 0, int(c.ValLen()))
}
