package corpus

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Documents are JSON lines: {"text"}, {"prompt", "completion"} or {"messages"}. Where all are texts
// they are joined, each ended by the model's end token, and trained on in windows as any text. Else
// each is a sequence of its own, of which completions, and what the assistant says, are learned.

// blockLines and blockBytes bound what is encoded at a time, by all cores.
const (
	blockLines = 1 << 14
	blockBytes = 32 << 20
)

// rowLine is a line of a file.
type rowLine struct {
	file string
	row  int
	text []byte
}

// readDocuments reads and encodes all documents of files, on all cores. Only a block of them has its ids as numbers; KTO needs all.
func readDocuments(text *data.Text, r *documentReader) (*data.Documents, error) {
	held := data.NewHolder(r.vocab())
	give := held.Add
	var all []data.Document
	if r.loss == stages.KTO {
		give = func(docs []data.Document) error {
			all = append(all, docs...)
			return nil
		}
	}
	block := make([]rowLine, 0, blockLines)
	bytes := 0
	next := func() error {
		docs, err := r.readBlock(block)
		block, bytes = block[:0], 0
		if err != nil {
			return err
		}
		return give(docs)
	}
	err := text.Lines(func(file string, row int, text []byte) error {
		block, bytes = append(block, rowLine{file, row, text}), bytes+len(text)
		if len(block) < blockLines && bytes < blockBytes {
			return nil
		}
		return next()
	})
	if err == nil {
		err = next()
	}
	if err == nil && r.loss == stages.KTO {
		if all, err = withOthersAnswers(all); err == nil {
			err = held.Add(all)
		}
	}
	if err != nil {
		return nil, err
	}
	return held.Documents(), nil
}

// readBlock reads and encodes the documents of lines, on all cores.
func (r *documentReader) readBlock(lines []rowLine) ([]data.Document, error) {
	per := r.perLine()
	all, errs := make([]data.Document, per*len(lines)), make([]error, len(lines))
	var next atomic.Int64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(lines)) {
		workers.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(lines) {
					return
				}
				of := all[per*i : per*(i+1)]
				if errs[i] = r.readInto(of, lines[i].text); errs[i] != nil {
					failed.Store(true)
				}
				for k := range of {
					of[k].File, of[k].Row = lines[i].file, lines[i].row
				}
			}
		})
	}
	workers.Wait()
	for i, err := range errs { // lines are taken in their order: the first fault is among them
		if err != nil {
			return nil, fmt.Errorf("%s, row %d: %w%s", data.Plain(lines[i].file), lines[i].row, err, r.hint)
		}
	}
	return all, nil
}

// loadDocuments reads data.train and data.val, which are documents.
func loadDocuments(cfg *config.Config, tok tokenizer.Tokenizer, talk rundir.Talk, accept Accept, kept *TokenStore) (_ *Data, err error) {
	if tok == nil {
		tok = tokenizer.Bytes{}
	}
	c := &Data{Tokenizer: tok}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	trainFiles, valFiles, excluded, err := Files(cfg)
	if err != nil {
		return nil, err
	}
	c.Excluded, c.kept = excluded, kept
	c.warnLeftOut(cfg, accept)
	r, err := newDocumentReader(tok, talk, cfg.Data.SpecialTokens, cfg.Data.Fields)
	if err != nil {
		return nil, cfg.Errorf("model.from", "%w", err)
	}
	r.loss = cfg.Preference.Loss
	read := func(key string, files []string, id *data.Identity) (*data.Documents, error) {
		docs, err := c.documents(files, func(is data.Identity) error {
			if *id = is; accept == nil {
				return nil
			}
			return accept(key, is)
		}, r)
		if err != nil {
			return nil, cfg.Errorf(key, "%w", err)
		}
		c.conversations = c.conversations || docs.Talk(0)
		c.Warnings = append(c.Warnings, r.warnings(key, cfg.IsSet("data.special_tokens"))...)
		return docs, nil
	}
	train, err := read("data.train", trainFiles, &c.Identity.Train)
	if err != nil {
		return nil, err
	}
	var val *data.Documents
	if len(valFiles) > 0 {
		c.Identity.Val = &data.Identity{}
		if val, err = read("data.val", valFiles, c.Identity.Val); err != nil {
			return nil, err
		}
	} else if cfg.HasMainSet() {
		split := splitDocuments
		if r.loss != "" {
			split = splitAnswers
		}
		if train, val, err = split(train, cfg.Data.ValFraction); err != nil {
			return nil, cfg.Errorf("data.val_fraction", "%w", err)
		}
	}
	if err := c.takeDocuments(cfg, train, val); err != nil {
		return c, err
	}
	if c.Documents != nil && c.conversations {
		c.Documents.Template = talk.Sources.Template
	}
	return c, nil
}

// splitDocuments parts those that are validated on from the others.
func splitDocuments(docs *data.Documents, valFraction float64) (train, val *data.Documents, err error) {
	is, err := data.SplitDocuments(docs.Len(), valFraction)
	if err != nil {
		return nil, nil, err
	}
	train, val = docs.Part(is)
	return train, val, nil
}

// allText reports whether all documents are texts.
func allText(docs *data.Documents) bool {
	for i := range docs.Len() {
		if !docs.Text(i) {
			return false
		}
	}
	return true
}

// takeDocuments makes of documents what is trained and validated on.
func (c *Data) takeDocuments(cfg *config.Config, train, val *data.Documents) (err error) {
	fit := fit
	if cfg.Preference.Loss != "" {
		fit = func(docs *data.Documents, context int, tooLong string) (*data.Records, DocumentCounts, error) {
			return fitAnswers(docs, context, tooLong, cfg.Preference.Loss != stages.KTO)
		}
	}
	texts := allText(train) && (val == nil || allText(val))
	if cfg.Data.Packing == config.PackSplit && !texts {
		return notTexts(cfg, train, val)
	}
	if texts && cfg.Data.Packing != config.PackFirstFit {
		if c.Train, c.trainBounds = train.Joined(); cfg.HasMainSet() {
			c.Val, c.valBounds = val.Joined()
		}
		for _, part := range []struct {
			key    string
			corpus data.Corpus
		}{{"data.train", c.Train}, {valKey(cfg), c.Val}} {
			if part.corpus == nil {
				continue
			}
			if err := data.CheckLength(part.corpus.Len(), cfg.Model.Context); err != nil {
				return cfg.Errorf(part.key, "the documents: %w", err)
			}
		}
		if cfg.Data.Packing == config.PackSplit {
			c.describeSplit(cfg)
		}
		return nil
	}
	var cut, cutVal DocumentCounts
	if c.TrainRecords, cut, err = fit(train, cfg.Model.Context, cfg.Data.TooLong); err != nil {
		return cfg.Errorf("data.train", "%w", err)
	}
	if c.ValRecords = new(data.Records); cfg.HasMainSet() {
		if c.ValRecords, cutVal, err = fit(val, cfg.Model.Context, cfg.Data.TooLong); err != nil {
			return cfg.Errorf(valKey(cfg), "%w", err)
		}
	}
	c.pack(cfg)
	both := cut.plus(cutVal)
	c.Warnings = append(c.Warnings, both.warnings(cfg.Model.Context)...)
	c.Documents = &event.Documents{Train: c.TrainRecords.Len(), Val: c.ValRecords.Len(), TrainLearned: cut.Learned, ValLearned: cutVal.Learned,
		Context: cfg.Model.Context, Longest: both.Longest, Cut: both.Cut, Dropped: both.Dropped}
	for i := range train.Len() {
		n := min(train.IDs(i), cfg.Model.Context+1)
		if train.Targets(i, n) == 0 {
			continue
		}
		d, err := train.Read(i)
		if err != nil {
			return cfg.Errorf("data.train", "%w", err)
		}
		d.IDs = d.IDs[:n]
		c.Documents.File, c.Documents.Row, c.Documents.Example = data.Plain(d.File), d.Row, pieces(d, c.Tokenizer)
		break
	}
	return nil
}

// recordSource feeds the loader with records.
type recordSource struct {
	train, val *data.Records
	seed       uint64
	sequences  int64 // in a step
	windows    []int // records of val
}

func newRecordSource(c *Data, cfg *config.Config, evalWindows int) *recordSource {
	return &recordSource{train: c.TrainRecords, val: c.ValRecords, seed: cfg.Run.Seed, sequences: int64(cfg.Batch.Sequences),
		windows: spreadOver(int64(c.ValRecords.Len()), evalWindows)}
}

func (s *recordSource) record(step int64, index int) int {
	return data.Order(s.seed, (step-1)*s.sequences+int64(index), s.train.Len())
}

func (s *recordSource) TrainLen(step int64, index int) int {
	return s.train.Positions(s.record(step, index))
}

func (s *recordSource) Train(step int64, index int, tokens, targets []int32) error {
	return s.train.Fill(s.record(step, index), tokens, targets)
}

func (s *recordSource) EvalWindows() int      { return len(s.windows) }
func (s *recordSource) EvalLen(index int) int { return s.val.Positions(s.windows[index]) }

func (s *recordSource) EvalFill(index int, tokens, targets []int32) error {
	return s.val.Fill(s.windows[index], tokens, targets)
}
