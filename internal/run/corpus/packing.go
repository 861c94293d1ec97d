package corpus

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// data.packing puts several documents into one sequence. With "first-fit" the sequences are Packs of whole
// documents. With "split" they are windows of joined texts, as without packing, and Bounds says where documents
// start. In both, the position of a sequence in the run decides its content.

// pack makes sequences of c's records if the configuration says so. Validation packs the documents in their order,
// so all runs on the same documents validate on the same sequences.
func (c *Data) pack(cfg *config.Config) {
	if cfg.Data.Packing != config.PackFirstFit {
		return
	}
	r, context := c.TrainRecords, cfg.Model.Context
	c.TrainPacks, c.ValPacks = data.PackShuffled(r, context, cfg.Run.Seed), data.PackRecords(c.ValRecords, context)
	positions := r.Tokens() - int64(r.Len()) // the last token of a document is only predicted
	c.describePacking(cfg, int64(c.TrainPacks.Len()), int64(r.Len()), positions, r.Targets())
}

// describeSplit describes windows of joined texts.
func (c *Data) describeSplit(cfg *config.Config) {
	tokens, documents, context := c.Train.Len(), int64(len(c.trainBounds)), int64(cfg.Model.Context)
	sequences := (tokens - 1) / context
	c.describePacking(cfg, sequences, documents, sequences*context, tokens-documents)
}

// describePacking describes the sequences of an epoch for people.
func (c *Data) describePacking(cfg *config.Config, sequences, documents, positions, targets int64) {
	n := float64(max(sequences, 1))
	c.Packing = &event.Packing{Mode: cfg.Data.Packing, Sequences: sequences, Documents: float64(documents) / n,
		FullPct: 100 * float64(positions) / n / float64(cfg.Model.Context),
		Targets: float64(targets) / n * float64(cfg.Batch.Sequences)}
}

// notTexts is the error of data.packing = "split" for documents that are not texts.
func notTexts(cfg *config.Config, docs ...*data.Documents) error {
	for _, all := range docs {
		for i := range all.Len() {
			if !all.Text(i) {
				file, row := all.Place(i)
				return cfg.Errorf("data.packing",
					"%q joins texts and cuts them anywhere, but %s, row %d is a prompt or a conversation; use %q, which keeps documents whole",
					config.PackSplit, data.Plain(file), row, config.PackFirstFit)
			}
		}
	}
	return nil
}

// packSource feeds the loader with packs.
type packSource struct {
	train, val *data.Packs
	seed       uint64
	sequences  int64 // in a step
	windows    []int // packs of val
}

func newPackSource(c *Data, cfg *config.Config, evalWindows int) *packSource {
	return &packSource{train: c.TrainPacks, val: c.ValPacks, seed: cfg.Run.Seed, sequences: int64(cfg.Batch.Sequences),
		windows: spreadOver(int64(c.ValPacks.Len()), evalWindows)}
}

func (s *packSource) pack(step int64, index int) int {
	return data.Order(s.seed, (step-1)*s.sequences+int64(index), s.train.Len())
}

func (s *packSource) TrainLen(step int64, index int) int {
	return s.train.Positions(s.pack(step, index))
}

func (s *packSource) Train(step int64, index int, tokens, targets []int32) error {
	return s.train.Fill(s.pack(step, index), tokens, targets)
}

func (s *packSource) TrainStarts(step int64, index int, starts []int32) error {
	return s.train.Starts(s.pack(step, index), starts)
}

func (s *packSource) EvalWindows() int      { return len(s.windows) }
func (s *packSource) EvalLen(index int) int { return s.val.Positions(s.windows[index]) }

func (s *packSource) EvalFill(index int, tokens, targets []int32) error {
	return s.val.Fill(s.windows[index], tokens, targets)
}

func (s *packSource) EvalStarts(index int, starts []int32) error {
	return s.val.Starts(s.windows[index], starts)
}

// splitSource feeds the loader with windows of joined documents.
type splitSource struct {
	*source
	trainBounds, valBounds data.Bounds
}

func (s *splitSource) Train(step int64, index int, tokens, targets []int32) error {
	if err := s.source.Train(step, index, tokens, targets); err != nil {
		return err
	}
	s.trainBounds.Mask(s.place(step, index), targets)
	return nil
}

func (s *splitSource) TrainStarts(step int64, index int, starts []int32) error {
	s.trainBounds.Starts(s.place(step, index), starts)
	return nil
}

func (s *splitSource) EvalFill(index int, tokens, targets []int32) error {
	if err := s.source.EvalFill(index, tokens, targets); err != nil {
		return err
	}
	s.valBounds.Mask(s.windows[index].Off, targets)
	return nil
}

func (s *splitSource) EvalStarts(index int, starts []int32) error {
	s.valBounds.Starts(s.windows[index].Off, starts)
	return nil
}
