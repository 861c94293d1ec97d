package corpus

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// EvalSet is a further validation set: an [[eval]] of the configuration.
type EvalSet struct {
	Name string
	Data *Data // Val, ValRecords or Samples.Val
}

// identityKey is the key under which Accept gets the content of a set. A set may get another place in the configuration.
func identityKey(name string) string { return "eval." + name }

// loadEvalSets reads the sets of all [[eval]] sections. c has the other data.
func (c *Data) loadEvalSets(cfg *config.Config, talk rundir.Talk, accept Accept) error {
	for i, e := range cfg.Eval {
		set := EvalSet{e.Name, &Data{Tokenizer: c.Tokenizer, kept: c.kept}}
		c.Sets = append(c.Sets, set)
		err := set.load(c, configOf(cfg, e), talk, func(id data.Identity) error {
			if c.Identity.Evals == nil {
				c.Identity.Evals = make(map[string]data.Identity)
			}
			if c.Identity.Evals[e.Name] = id; accept == nil {
				return nil
			}
			return accept(identityKey(e.Name), id)
		})
		if err != nil {
			return failed(cfg, plan.EvalKey(i), err)
		}
		for _, warning := range append(leftOut(plan.EvalKey(i), e.Files, nil), set.Data.Warnings...) {
			if accept == nil { // else the run's start has said it
				c.Warnings = append(c.Warnings, warning)
			}
		}
	}
	return nil
}

// configOf returns the configuration as if the set were all of its data.
func configOf(cfg *config.Config, e config.Eval) *config.Config {
	of := *cfg
	of.Data.Format, of.Data.Fields, of.Data.Train, of.Data.Val, of.Data.ValFraction = e.Format, e.Fields, e.Files, nil, 0
	of.Eval = nil
	return &of
}

// load reads the files of a set. of is all data of the run.
func (s EvalSet) load(of *Data, cfg *config.Config, talk rundir.Talk, accept func(data.Identity) error) error {
	if !cfg.Text() {
		return s.loadSamples(of, cfg, accept)
	}
	files, err := filesOfSet(cfg, cfg.Data.Train)
	if err != nil {
		return unreadable(err)
	}
	if cfg.Documents() {
		return s.loadDocuments(cfg, talk, files, accept)
	}
	if s.Data.Val, err = s.Data.read(readingOf(cfg, s.Data.Tokenizer), files, accept); err != nil {
		return err
	}
	s.Data.warnNames(cfg.Data.SpecialTokens, cfg.IsSet("data.special_tokens"))
	return data.CheckLength(s.Data.Val.Len(), cfg.Model.Context)
}

func (s EvalSet) loadDocuments(cfg *config.Config, talk rundir.Talk, files []string, accept func(data.Identity) error) error {
	r, err := newDocumentReader(s.Data.Tokenizer, talk, cfg.Data.SpecialTokens, cfg.Data.Fields)
	if err != nil {
		return err
	}
	docs, err := s.Data.documents(files, accept, r)
	if err != nil {
		return err
	}
	s.Data.Warnings = append(s.Data.Warnings, r.warnings("[[eval]] "+s.Name, cfg.IsSet("data.special_tokens"))...)
	if allText(docs) && cfg.Data.Packing != config.PackFirstFit {
		var bounds data.Bounds
		if s.Data.Val, bounds = docs.Joined(); cfg.Data.Packing == config.PackSplit {
			s.Data.valBounds = bounds
		}
		return data.CheckLength(s.Data.Val.Len(), cfg.Model.Context)
	}
	records, cut, err := fit(docs, cfg.Model.Context, cfg.Data.TooLong)
	s.Data.ValRecords = records
	for _, w := range cut.warnings(cfg.Model.Context) {
		s.Data.Warnings = append(s.Data.Warnings, "[[eval]] "+s.Name+": "+w)
	}
	return err
}

// errLabelFiles: a set cannot name the files with its labels.
var errLabelFiles = errors.New(`samples whose labels are in files of their own cannot be an [[eval]]; use data.val and data.val_labels, or format = "csv" or "jsonl"`)

func (s EvalSet) loadSamples(of *Data, cfg *config.Config, accept func(data.Identity) error) error {
	if len(cfg.Data.Labels) > 0 {
		return errLabelFiles
	}
	for _, f := range of.Fields {
		if f.Classes > 0 { // the same classes with the same ids, even if some do not occur
			cfg.Data.Classes, cfg.Data.ClassNames = f.Classes, f.Names
		}
	}
	opened, err := openSamples(cfg, cfg.Data)
	if err != nil {
		return err
	}
	if opened.Samples.Train == nil {
		return errors.Join(fmt.Errorf("the format %q is a stream, which cannot be an [[eval]]", cfg.Data.Format), opened.Close())
	}
	if err := plan.SameFields(of.Fields, opened.Fields); err != nil {
		return errors.Join(err, opened.Close())
	}
	opened.Samples.Val = opened.Samples.Train
	s.Data.Samples, s.Data.Fields = opened.Samples, opened.Fields
	id, err := samples.Identity(s.Data.Samples.Val)
	if err != nil {
		return unreadable(err)
	}
	return accept(id)
}

// source returns a feed of the set's validation windows, as far as there are so many.
func (s EvalSet) source(cfg *config.Config, evalWindows int) (actors.Source, error) {
	switch {
	case s.Data.Samples != nil:
		f := &sampleSource{data: *s.Data.Samples, val: spreadOver(s.Data.ValLen(), evalWindows)}
		for _, of := range s.Data.Fields {
			f.names = append(f.names, of.Name)
		}
		return f, nil
	case s.Data.ValRecords != nil && cfg.Data.Packing == config.PackFirstFit:
		packs := data.PackRecords(s.Data.ValRecords, cfg.Model.Context)
		return &packSource{val: packs, windows: spreadOver(int64(packs.Len()), evalWindows)}, nil
	case s.Data.ValRecords != nil:
		return &recordSource{val: s.Data.ValRecords, windows: spreadOver(int64(s.Data.ValRecords.Len()), evalWindows)}, nil
	}
	f := &source{val: s.Data.Val}
	if err := f.validate(cfg.Model.Context, evalWindows); err != nil {
		return nil, err
	}
	if !cfg.Language() {
		return &textSamples{source: f, context: cfg.Model.Context}, nil
	}
	if s.Data.valBounds != nil {
		return &splitSource{source: f, valBounds: s.Data.valBounds}, nil
	}
	return f, nil
}

// spreadOver returns the indices of up to want of n samples, from all over them.
func spreadOver(n int64, want int) (all []int) {
	most := min(n, int64(want))
	for i := range most {
		all = append(all, int(i*n/most))
	}
	return all
}

// DescribeSets describes the sets to people: their names, and their windows in a validation. "" if there are none.
func (f *Feed) DescribeSets(main bool) string {
	text := ""
	for i, s := range f.Sets {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s (%s)", s.Name, words.Plural(s.Data.EvalWindows(), "window"))
	}
	if text != "" && !main {
		text += fmt.Sprintf("; %s decides which checkpoint is the best", f.Sets[0].Name)
	}
	return text
}

// DecidingWindows returns the number of windows of the set that decides which checkpoint is the best, and its name: "" is data.val or
// data.val_fraction.
func (f *Feed) DecidingWindows() (n int, set string) {
	if f.Windows == 0 && len(f.Sets) > 0 {
		return f.Sets[0].Data.EvalWindows(), f.Sets[0].Name
	}
	return f.Windows, ""
}

// EvalMicrobatches returns the number of microbatches of a validation.
func (f *Feed) EvalMicrobatches(size int) int { return actors.EvalMicrobatches(size, f.Source, f.Sets) }
