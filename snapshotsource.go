package troupe

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// snapshotSource is where the next snapshot of a run comes from.
type snapshotSource struct {
	inner  *actors.Run // nil: a checkpoint
	dir    string
	step   int64 // the last one that has ended
	paused bool  // after that step
	shape  *stages.Model
	tok    tokenizer.Tokenizer
	text   *corpus.Text
	device config.Device
	err    error
}

func (r *Run) snapshotSource() (s snapshotSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempt == nil {
		s.err = fmt.Errorf("%w: the run has not started yet", ErrNoSnapshot)
		return s
	}
	s = snapshotSource{step: max(r.step, r.pausedAt), paused: r.pausedAt >= 0, shape: r.attempt.Model, tok: r.attempt.Tokenizer,
		text: r.attempt.Text, device: r.cfg.Device}
	ended := r.over()
	if !ended && !r.apart {
		s.inner = r.inner
		return s
	}
	if s.dir = r.result.Dir; s.dir == "" {
		s.err = fmt.Errorf("%w: the run's ranks are in other processes, and there is no checkpoint yet; request one", ErrNoSnapshot)
		if ended {
			s.err = fmt.Errorf("%w: the run has ended without a checkpoint", ErrNoSnapshot)
		}
	}
	return s
}

// accepts reports whether existing weights may be used instead of new ones.
func (s *snapshotSource) accepts(w *weightsAt, o SnapshotOptions) bool {
	switch {
	case s.inner == nil:
		return w.dir == s.dir
	case w.step >= s.step:
		return true
	case s.paused:
		return false
	case o.MaxSteps > 0 && s.step-w.step <= o.MaxSteps:
		return true
	}
	return o.MaxAge > 0 && time.Since(w.taken) <= o.MaxAge
}

// take takes a snapshot. spare, if not nil, is an older one of the run that is not in use.
func (s *snapshotSource) take(spare *weightsAt) (*weightsAt, error) {
	if s.inner == nil {
		if spare != nil {
			_ = spare.close() // it only frees memory
		}
		return s.read()
	}
	w := spare
	if w == nil || w.dir != "" {
		m, err := trained.Hold(s.shape, s.tok, s.text, s.device)
		if err != nil {
			return nil, err
		}
		w = &weightsAt{model: m}
	}
	step, err := s.inner.CopyWeights(w.model.Weights.HostWeight)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.step, w.taken = step, time.Now()
	w.model.Source = fmt.Sprintf("the run at step %d", step)
	return w, nil
}

// read reads the weights of the checkpoint.
func (s *snapshotSource) read() (*weightsAt, error) {
	m, err := trained.Open(trained.Options{From: s.dir, Threads: s.device.Threads, Kernels: s.device.Kernels}, false)
	if err != nil {
		return nil, err
	}
	if m.Weights, err = m.Stage(m.Device.NewStream("snapshot")); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &weightsAt{model: m, step: int64(m.Checkpoint.Step()), dir: s.dir, taken: time.Now()}, nil
}

// A snapshot is copied from a stage.
var _ actors.WeightCopier = (*stages.Stage)(nil)
