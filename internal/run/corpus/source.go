package corpus

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
)

// source feeds the loader actor. Everything it returns is a function of its
// arguments.
type source struct {
	train, val data.Corpus
	epochs     data.Epochs
	sequences  int64         // in a step
	windows    []data.Window // of validation
}

func newSource(c *Data, cfg *config.Config, evalWindows int) (*source, error) {
	context := cfg.Model.Context
	epochs, err := data.NewEpochs(cfg.Run.Seed, c.Train.Len(), context)
	if err != nil {
		return nil, cfg.Errorf("data.train", "%w", err)
	}
	s := &source{train: c.Train, val: c.Val, epochs: epochs, sequences: int64(cfg.Batch.Sequences)}
	if err := s.validate(context, evalWindows); err != nil {
		return nil, cfg.Errorf(valKey(cfg), "%w", err)
	}
	return s, nil
}

// validate chooses up to so many windows of validation.
func (s *source) validate(context, evalWindows int) error {
	if s.val == nil { // each [[eval]] has a source of its own
		return nil
	}
	offsets, err := data.ValWindows(s.val, context, evalWindows)
	for _, off := range offsets {
		s.windows = append(s.windows, data.Window{Off: off, Len: context})
	}
	return err
}

func (s *source) Train(step int64, index int, tokens, targets []int32) error {
	return data.Fill(s.train, s.place(step, index), tokens, targets)
}

// place returns where in the text a training sequence starts.
func (s *source) place(step int64, index int) int64 {
	_, off := s.epochs.Window((step-1)*s.sequences + int64(index))
	return off
}

func (s *source) EvalWindows() int      { return len(s.windows) }
func (s *source) EvalLen(index int) int { return s.windows[index].Len }

func (s *source) EvalFill(index int, tokens, targets []int32) error {
	return data.Fill(s.val, s.windows[index].Off, tokens, targets)
}
