package corpus

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// A run has parts if its documents come from several sources with weights, or are a stream. A mixture says which part each
// sequence of the run is from, and which of its sequences it is.

// sequences are the training sequences of a part, each epoch in another order. Sequence n of a part is always the same one. They are
// safe for concurrent use.
type sequences interface {
	// Positions returns the length of a sequence.
	Positions(n int64) (int, error)
	// Fill reads it.
	Fill(n int64, tokens, targets []int32) error
	// Size says what there is; sequences is 0 if it is not known yet.
	Size() (sequences, documents, tokens int64)
	Close() error
}

// part is a source of documents.
type part struct {
	name   string // "": the only one
	weight float64
	files  []string
	train  sequences
	val    *Data // what is validated on, if the part gives it: Val or ValRecords
}

// sourceKey is the key of the files of a [[data.source]], counted from 0.
func sourceKey(i int) string { return fmt.Sprintf("data.source[%d].files", i+1) }

// identityOfSource is the key under which Accept gets the content of a source. A source may get another place in the configuration.
func identityOfSource(name string) string { return "data.source." + name }

// loadParts reads documents from sources, or as a stream.
func loadParts(cfg *config.Config, tok tokenizer.Tokenizer, talk rundir.Talk, accept Accept, kept *TokenStore) (_ *Data, err error) {
	if tok == nil {
		tok = tokenizer.Bytes{}
	}
	c := &Data{Tokenizer: tok, kept: kept}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	all, valFiles, err := c.findParts(cfg)
	if err != nil {
		return nil, err
	}
	c.warnLeftOut(cfg, accept)
	for i, p := range all {
		key, id := "data.train", "data.train"
		if p.name != "" {
			key, id = sourceKey(i), identityOfSource(p.name)
		}
		c.parts = append(c.parts, p)
		if err := c.loadPart(cfg, p, talk, len(valFiles) > 0, func(is data.Identity) error {
			c.identify(p.name, is)
			if accept == nil {
				return nil
			}
			return accept(id, is)
		}); err != nil {
			return nil, cfg.Errorf(key, "%w", err)
		}
	}
	if len(valFiles) > 0 {
		if err := c.loadValidation(cfg, talk, valFiles, accept); err != nil {
			return nil, cfg.Errorf(valKey(cfg), "%w", err)
		}
	}
	c.mix = newMixture(cfg.Run.Seed, weightsOf(all))
	return c, nil
}

func weightsOf(all []*part) []float64 {
	weights := make([]float64, len(all))
	for i, p := range all {
		weights[i] = p.weight
	}
	return weights
}

// identify keeps the identity of a part.
func (c *Data) identify(name string, is data.Identity) {
	if name == "" {
		c.Identity.Train = is
		return
	}
	if c.Identity.Sources == nil {
		c.Identity.Sources = make(map[string]data.Identity)
	}
	c.Identity.Sources[name] = is
}

// loadPart reads a part. ownVal: the validation data are files of their own.
func (c *Data) loadPart(cfg *config.Config, p *part, talk rundir.Talk, ownVal bool, accept func(data.Identity) error) error {
	r, err := newDocumentReader(c.Tokenizer, talk, cfg.Data.SpecialTokens, cfg.Data.Fields)
	if err != nil {
		return err
	}
	fraction := cfg.Data.ValFraction
	if ownVal {
		fraction = 0
	}
	if cfg.Data.Stream {
		return c.openStream(cfg, p, r, fraction, accept)
	}
	docs, err := c.documents(p.files, accept, r)
	if err != nil {
		return err
	}
	where := "data.train"
	if p.name != "" {
		where = "source " + p.name
	}
	c.Warnings = append(c.Warnings, r.warnings(where, cfg.IsSet("data.special_tokens"))...)
	var val *data.Documents
	if fraction > 0 {
		if docs, val, err = splitDocuments(docs, fraction); err != nil {
			return err
		}
	}
	if fraction > 0 {
		p.val = &Data{Tokenizer: c.Tokenizer}
	}
	if allText(docs) && (val == nil || allText(val)) {
		corpus, _ := docs.Joined()
		epochs, err := data.NewEpochs(cfg.Run.Seed, corpus.Len(), cfg.Model.Context)
		if err != nil {
			return err
		}
		p.train = &windowsOf{corpus, epochs, cfg.Model.Context, int64(docs.Len())}
		if p.val != nil {
			p.val.Val, _ = val.Joined()
			return data.CheckLength(p.val.Val.Len(), cfg.Model.Context)
		}
		return nil
	}
	records, counts, err := fit(docs, cfg.Model.Context, cfg.Data.TooLong)
	if err != nil {
		return err
	}
	p.train = &recordsOf{records, cfg.Run.Seed}
	if p.val != nil {
		var of DocumentCounts
		if p.val.ValRecords, of, err = fit(val, cfg.Model.Context, cfg.Data.TooLong); err != nil {
			return err
		}
		counts = counts.plus(of)
	}
	for _, w := range counts.warnings(cfg.Model.Context) {
		c.Warnings = append(c.Warnings, where+": "+w)
	}
	return nil
}

// loadValidation reads the files of data.val into memory.
func (c *Data) loadValidation(cfg *config.Config, talk rundir.Talk, files []string, accept Accept) error {
	r, err := newDocumentReader(c.Tokenizer, talk, cfg.Data.SpecialTokens, cfg.Data.Fields)
	if err != nil {
		return err
	}
	c.Identity.Val = &data.Identity{}
	docs, err := c.documents(files, func(is data.Identity) error {
		if *c.Identity.Val = is; accept == nil {
			return nil
		}
		return accept("data.val", is)
	}, r)
	if err != nil {
		return err
	}
	c.Warnings = append(c.Warnings, r.warnings(valKey(cfg), cfg.IsSet("data.special_tokens"))...)
	if allText(docs) {
		c.Val, _ = docs.Joined()
		return data.CheckLength(c.Val.Len(), cfg.Model.Context)
	}
	var counts DocumentCounts
	c.ValRecords, counts, err = fit(docs, cfg.Model.Context, cfg.Data.TooLong)
	c.Warnings = append(c.Warnings, counts.warnings(cfg.Model.Context)...)
	return err
}

// windowsOf are the windows of texts that are joined.
type windowsOf struct {
	corpus    data.Corpus
	epochs    data.Epochs
	context   int
	documents int64
}

func (w *windowsOf) Positions(int64) (int, error) { return w.context, nil }
func (w *windowsOf) Close() error                 { return nil }

func (w *windowsOf) Fill(n int64, tokens, targets []int32) error {
	_, off := w.epochs.Window(n)
	return data.Fill(w.corpus, off, tokens, targets)
}

func (w *windowsOf) Size() (sequences, documents, tokens int64) {
	return w.epochs.Windows(), w.documents, w.corpus.Len()
}

// recordsOf are documents one by one.
type recordsOf struct {
	records *data.Records
	seed    uint64
}

func (r *recordsOf) at(n int64) int { return data.Order(r.seed, n, r.records.Len()) }

func (r *recordsOf) Positions(n int64) (int, error) { return r.records.Positions(r.at(n)), nil }
func (r *recordsOf) Close() error                   { return nil }

func (r *recordsOf) Fill(n int64, tokens, targets []int32) error {
	return r.records.Fill(r.at(n), tokens, targets)
}

func (r *recordsOf) Size() (sequences, documents, tokens int64) {
	return int64(r.records.Len()), int64(r.records.Len()), r.records.Tokens()
}

// partSource feeds the loader from parts.
type partSource struct {
	parts     []*part
	mix       *mixture
	sequences int64 // in a step
	val       []actors.Source
}

// newPartSource returns a source that validates on up to so many windows, the same number of each part that has any.
func newPartSource(c *Data, cfg *config.Config, evalWindows int) (*partSource, error) {
	s := &partSource{parts: c.parts, mix: c.mix, sequences: int64(cfg.Batch.Sequences)}
	var vals []*Data
	if c.Val != nil || c.ValRecords != nil {
		vals = append(vals, c)
	}
	for _, p := range c.parts {
		if p.val != nil {
			vals = append(vals, p.val)
		}
	}
	for i, of := range vals {
		want := evalWindows*(i+1)/len(vals) - evalWindows*i/len(vals)
		v, err := of.valSource(cfg, max(want, 1))
		if err != nil {
			return nil, cfg.Errorf(valKey(cfg), "%w", err)
		}
		s.val = append(s.val, v)
	}
	return s, nil
}

// valSource returns a source of up to so many windows of Val or ValRecords.
func (c *Data) valSource(cfg *config.Config, want int) (actors.Source, error) {
	if c.ValRecords != nil {
		s := &recordSource{val: c.ValRecords}
		n := s.val.Len()
		want = min(n, want)
		for i := range want {
			s.windows = append(s.windows, int(int64(i)*int64(n)/int64(want)))
		}
		return s, nil
	}
	s := &source{val: c.Val}
	offsets, err := data.ValWindows(c.Val, cfg.Model.Context, want)
	for _, off := range offsets {
		s.windows = append(s.windows, data.Window{Off: off, Len: cfg.Model.Context})
	}
	return s, err
}

// at returns the part of a sequence of a step, and its number in the part.
func (s *partSource) at(step int64, index int) (*part, int64) {
	i, n := s.mix.at((step-1)*s.sequences + int64(index))
	return s.parts[i], n
}

// TrainLen is 1 for a sequence that can't be read: Train reports why.
func (s *partSource) TrainLen(step int64, index int) int {
	p, n := s.at(step, index)
	length, err := p.train.Positions(n)
	if err != nil {
		return 1
	}
	return length
}

func (s *partSource) Train(step int64, index int, tokens, targets []int32) error {
	p, n := s.at(step, index)
	err := p.train.Fill(n, tokens, targets)
	if err != nil && p.name != "" {
		return fmt.Errorf("source %s: %w", p.name, err)
	}
	return err
}

func (s *partSource) EvalWindows() (n int) {
	for _, v := range s.val {
		n += v.EvalWindows()
	}
	return n
}

// eval returns the source of a validation window, and its index there.
func (s *partSource) eval(index int) (actors.Source, int) {
	for _, v := range s.val {
		if n := v.EvalWindows(); index >= n {
			index -= n
			continue
		}
		return v, index
	}
	return s.val[len(s.val)-1], index // out of its range, too
}

func (s *partSource) EvalLen(index int) int {
	v, i := s.eval(index)
	return v.EvalLen(i)
}

func (s *partSource) EvalFill(index int, tokens, targets []int32) error {
	v, i := s.eval(index)
	return v.EvalFill(i, tokens, targets)
}

// epoch returns the sequences after which each part has been read once, by its weight; 0: not known.
func (c *Data) epoch() int64 {
	longest := 0.0
	for i, p := range c.parts {
		n, _, _ := p.train.Size()
		if n == 0 {
			return 0
		}
		longest = max(longest, float64(n)/c.mix.share(i))
	}
	return int64(longest)
}

// DescribeSources says what the sources are, and how much of a run of some sequences is from each, of which some are done; "": there is
// only one, and it is no stream.
func (c *Data) DescribeSources(done, all int64) string {
	lines := make([]string, 0, len(c.parts))
	for i, p := range c.parts {
		sequences, documents, tokens := p.train.Size()
		text := ""
		if p.name != "" {
			text = fmt.Sprintf("%s: %.4g %% of the sequences, ", p.name, 100*c.mix.share(i))
		}
		text += words.Count(c.mix.count(all, i)) + " in this run"
		if done > 0 {
			text += fmt.Sprintf(" (%s are done)", words.Count(c.mix.count(done, i)))
		}
		if sequences > 0 {
			text += fmt.Sprintf(", %.3g epochs of %s in %s tokens", float64(c.mix.count(all, i))/float64(sequences),
				words.CountOf(documents, "document"), words.Count(tokens))
		} else {
			text += fmt.Sprintf(", read as a stream of which %s are tokenized", words.CountOf(documents, "document"))
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "; ")
}
