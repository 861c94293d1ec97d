package troupe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
)

// textSampler has the model write a text at each validation of an attempt, with the weights that
// were validated. The stages copy them before their next order, as for a checkpoint; the text is written while
// training goes on, by one core. Where the ranks are in other processes the weights are those of the checkpoint
// of the validated step, if there is one.
type textSampler struct {
	run    *Run
	device config.Device
	apart  bool
	last   int64 // apart: the step that was validated last
	o      GenerateOptions
	model  *trained.Model // whose weights are copied to; nil where ranks are in other processes
	gen    *infer.Generator
	w      *telemetry.SampleWriter

	busy    atomic.Bool // the weights are being copied or used
	skipped atomic.Int64
	tasks   chan sampleTask // capacity 1
	quit    chan struct{}
	done    chan struct{} // closed when nothing uses the weights
	ctx     context.Context
	cancel  context.CancelFunc
}

// sampleTask is a copy of the weights of a step.
type sampleTask struct {
	step  int64
	place func() error // the last of them
	dir   string       // of the checkpoint that they are in; "": they are the sampler's
}

// newTextSampler makes one, if the configuration asks for samples; why says why there are none all
// the same. It must be ended.
func newTextSampler(r *Run, cfg *config.Config, m *stages.Model, tok tokenizer.Tokenizer, w *telemetry.SampleWriter) (s *textSampler, why string) {
	switch {
	case cfg.Run.SampleTokens == 0:
		return nil, ""
	case !m.Config.Language():
		return nil, fmt.Sprintf("a model of the family %q writes none", m.Config.Family)
	case tok == nil:
		return nil, "the data's tokenizer is not known"
	}
	s = &textSampler{run: r, o: GenerateOptions{Prompt: cfg.Run.SamplePrompt, Tokens: cfg.Run.SampleTokens}, w: w,
		device: cfg.Device, apart: r.apart, last: -1, tasks: make(chan sampleTask, 1), quit: make(chan struct{}), done: make(chan struct{})}
	s.device.Threads = 1
	if !s.apart {
		var err error
		if s.model, err = trained.Hold(m, tok, r.text, s.device); err != nil {
			return nil, err.Error()
		}
		s.gen = infer.GeneratorOf(s.model)
	}
	warned := false // every validation would say the same
	s.o.Warn = func(text string) {
		if !warned {
			warned = true
			r.warn("the samples (run.sample_tokens): %s", text)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.loop() // ends with end
	return s, ""
}

// copyAtEval is actors.Spec's.
func (s *textSampler) copyAtEval(step int64) (to func(param int) []float32, done func(place func() error)) {
	if !s.busy.CompareAndSwap(false, true) {
		s.skipped.Add(1)
		return nil, nil
	}
	return s.model.Weights.HostWeight, func(place func() error) { s.tasks <- sampleTask{step: step, place: place} }
}

// event is told, in their order, of steps and checkpoints.
func (s *textSampler) event(e Event) {
	if s == nil || !s.apart {
		return
	}
	switch e := e.(type) {
	case StepEvent:
		if e.ValLoss != nil {
			s.last = int64(e.Step)
		}
	case CheckpointEvent:
		switch {
		case e.Step != s.last:
		case !s.busy.CompareAndSwap(false, true):
			s.skipped.Add(1)
		default:
			s.tasks <- sampleTask{step: e.Step, dir: e.Dir}
		}
	}
}

func (s *textSampler) loop() {
	defer close(s.done)
	for {
		select {
		case t := <-s.tasks:
			s.sample(t)
		case <-s.quit:
			select {
			case t := <-s.tasks:
				s.sample(t)
			default:
			}
			return
		}
	}
}

// sample writes the text of a step.
func (s *textSampler) sample(t sampleTask) {
	defer s.busy.Store(false)
	text, err := s.text(t)
	if err == nil {
		err = s.w.Write(telemetry.Sample{Step: int(t.step), Prompt: s.o.Prompt, Text: text})
	}
	switch {
	case err == nil:
		s.run.mark(t.step, telemetry.MarkSample, "")
	case s.ctx.Err() == nil:
		s.run.warn("there is no sample of step %d: %v", t.step, err)
	}
	if n := s.skipped.Swap(0); n > 0 {
		s.run.warn("validations came while the sample of step %d was being written, and have none: %d; fewer run.sample_tokens take less time", t.step, n)
	}
}

// text has the model write.
func (s *textSampler) text(t sampleTask) (string, error) {
	var text strings.Builder
	emit := func(b []byte) error {
		_, err := text.Write(b)
		return err
	}
	if t.dir != "" {
		o := s.o
		o.ModelOptions = ModelOptions{From: t.dir, Threads: s.device.Threads, Kernels: s.device.Kernels}
		err := Generate(s.ctx, o, emit)
		return text.String(), err
	}
	s.model.Source = fmt.Sprintf("the run at step %d", t.step)
	if err := t.place(); err != nil {
		return "", err
	}
	err := s.gen.Generate(s.ctx, s.o, emit)
	return text.String(), err
}

// end waits until the last text is written, and gives the weights back. cut ends that text where
// it is. No stage copies any more.
func (s *textSampler) end(cut bool) error {
	if s == nil {
		return nil
	}
	if cut {
		s.cancel()
	}
	close(s.quit)
	<-s.done
	s.cancel()
	err := s.w.Close()
	if s.model != nil {
		err = errors.Join(s.model.Close(), err)
	}
	return err
}
