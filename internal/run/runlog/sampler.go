package runlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Sampler generates a sample text at each validation of an attempt, with the validated weights.
// The stages copy the weights before their next order, as for a checkpoint. One core generates the text while
// training continues. If the ranks are in other processes, the weights are those of the checkpoint
// of the validated step, if there is one.
type Sampler struct {
	SamplerOptions
	device config.Device
	last   int64 // Apart: the step that was validated last
	what   infer.TextOptions
	model  *trained.Model // to which weights are copied; nil if ranks are in other processes
	gen    *infer.Generator

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
	dir   string       // of the checkpoint with the weights; "": the sampler has them
}

// SamplerOptions are the options of NewSampler.
type SamplerOptions struct {
	Config    *config.Config
	Model     *stages.Model
	Tokenizer tokenizer.Tokenizer // nil: not known
	Text      *corpus.Text
	Apart     bool // the ranks are in other processes
	Writer    *telemetry.SampleWriter
	Warn      func(format string, args ...any)
	Written   func(s telemetry.Sample) // a text is in the file
}

// NewSampler returns a Sampler if run.sample_tokens is set. why is the reason if there are no samples all
// the same. Call End at the end.
func NewSampler(o SamplerOptions) (s *Sampler, why string) {
	run := o.Config.Run
	switch {
	case run.SampleTokens == 0:
		return nil, ""
	case !o.Model.Config.Language():
		return nil, fmt.Sprintf("a model of family %q does not generate text", o.Model.Config.Family)
	case o.Tokenizer == nil:
		return nil, "the tokenizer of the data is not known"
	}
	s = &Sampler{SamplerOptions: o, device: o.Config.Device, last: -1, tasks: make(chan sampleTask, 1), quit: make(chan struct{}),
		done: make(chan struct{})}
	s.device.Threads = 1
	if !s.Apart {
		var err error
		if s.model, err = trained.Hold(o.Model, o.Tokenizer, o.Text, s.device); err != nil {
			return nil, err.Error()
		}
		s.gen = infer.GeneratorOf(s.model)
	}
	warned := false // every validation would repeat it
	s.what = infer.TextOptions{Prompt: run.SamplePrompt, Tokens: run.SampleTokens, Temperature: run.SampleTemperature,
		Seed: run.Seed, Warn: func(text string) {
			if !warned {
				warned = true
				s.Warn("sample text (run.sample_tokens): %s", text)
			}
		}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.loop() // ends with End
	return s, ""
}

// CopyAtEval implements actors.Spec.CopyAtEval.
func (s *Sampler) CopyAtEval(step int64) (to func(param int) []float32, done func(place func() error)) {
	if !s.busy.CompareAndSwap(false, true) {
		s.skipped.Add(1)
		return nil, nil
	}
	return s.model.Weights.HostWeight, func(place func() error) { s.tasks <- sampleTask{step: step, place: place} }
}

// Event receives steps and checkpoints, in order.
func (s *Sampler) Event(e event.Event) {
	if s == nil || !s.Apart {
		return
	}
	switch e := e.(type) {
	case event.StepEvent:
		if e.ValLoss != nil {
			s.last = int64(e.Step)
		}
	case event.CheckpointEvent:
		switch {
		case e.Step != s.last:
		case !s.busy.CompareAndSwap(false, true):
			s.skipped.Add(1)
		default:
			s.tasks <- sampleTask{step: e.Step, dir: e.Dir}
		}
	}
}

func (s *Sampler) loop() {
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

// sample generates and writes the text of a step.
func (s *Sampler) sample(t sampleTask) {
	defer s.busy.Store(false)
	text, err := s.text(t)
	written := telemetry.Sample{Step: int(t.step), Prompt: s.what.Prompt, Text: text}
	if err == nil {
		err = s.Writer.Write(written)
	}
	switch {
	case err == nil:
		s.Written(written)
	case s.ctx.Err() == nil:
		s.Warn("no sample text for step %d: %v", t.step, err)
	}
	// A short run validates again before the text of step 0 is written. Its config needs no change.
	if n := s.skipped.Swap(0); n > 0 && t.step > 0 {
		s.Warn("while the sample text of step %d was generated, %s passed without one; reduce run.sample_tokens",
			t.step, words.Plural(int(n), "validation"))
	}
}

// text generates the text.
func (s *Sampler) text(t sampleTask) (string, error) {
	var text strings.Builder
	emit := func(b []byte) error {
		_, err := text.Write(b)
		return err
	}
	if t.dir != "" {
		model := infer.ModelOptions{From: t.dir, Threads: s.device.Threads, Kernels: s.device.Kernels}
		err := infer.Generate(s.ctx, infer.GenerateOptions{ModelOptions: model, TextOptions: s.what}, emit)
		return text.String(), err
	}
	s.model.Source = fmt.Sprintf("the run at step %d", t.step)
	if err := t.place(); err != nil {
		return "", err
	}
	err := s.gen.Generate(s.ctx, s.what, emit)
	return text.String(), err
}

// End waits until the last text is written, and frees the weights. cut stops that text. No stage may
// copy any more.
func (s *Sampler) End(cut bool) error {
	if s == nil {
		return nil
	}
	if cut {
		s.cancel()
	}
	close(s.quit)
	<-s.done
	s.cancel()
	err := s.Writer.Close()
	if s.model != nil {
		err = errors.Join(s.model.Close(), err)
	}
	return err
}
