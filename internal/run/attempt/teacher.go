package attempt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/forward"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// With [distill] a run learns from a teacher, whose most likely tokens never change. So one pass over the data computes them, in this
// process and before the first step. The run's folder keeps them.

// readTeacher opens the teacher's tokens in the folder, after it has computed and written them if they are not there.
func (a *Attempt) readTeacher(ctx context.Context) error {
	to := a.data.Teacher
	if to == nil {
		return nil
	}
	d := a.cfg.Distill
	digest, err := a.data.RecordsDigest()
	if err != nil {
		return err
	}
	kept, err := rundir.ReadTeacher(a.output.FS)
	if err != nil {
		return err
	}
	fits := kept != nil && kept.Data == digest && kept.TopK == d.TopK && kept.Temperature == d.Temperature
	if !fits || !a.resumes() { // else the teacher may be gone
		if kept, err = a.teach(ctx, kept, fits, digest); err != nil {
			return err
		}
	}
	to.Tokens, err = rundir.OpenTeacher(a.output.FS, kept)
	return err
}

// teach computes and writes the teacher's tokens, unless kept, which fits the data, has them.
func (a *Attempt) teach(ctx context.Context, kept *rundir.Teacher, fits bool, digest string) (_ *rundir.Teacher, err error) {
	d := a.cfg.Distill
	m, err := trained.Open(trained.Options{From: d.From, Threads: a.cfg.Device.Threads, Kernels: a.cfg.Device.Kernels}, false)
	if err != nil {
		return nil, a.cfg.Errorf("distill.from", "the teacher: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := a.checkTeacher(m); err != nil {
		return nil, err
	}
	hash, err := plan.BaseHash(m.Checkpoint)
	if err != nil {
		return nil, a.cfg.Errorf("distill.from", "the teacher: %w", err)
	}
	switch model := hash + " " + fmt.Sprint(m.Precision.BF16); {
	case fits && kept.Model == model:
		return kept, nil
	case kept != nil && a.resumes() && kept.Model != model:
		return nil, a.cfg.Errorf("distill.from", "%w: the data changed, and the teacher's weights are not those of the run's start; "+
			"restore the data or the weights", rundir.ErrTeacher)
	default:
		hash = model
	}
	feed := a.data.TrainFeed(a.cfg.Model.Context)
	if err := a.plan.CheckBefore(); err != nil {
		return nil, err
	}
	a.env.Prepare("computing the teacher's %d most likely tokens in %s, once: %s keeps them", d.TopK, words.Plural(feed.Windows, "record"),
		a.output.FS.Path(rundir.TeacherTokensFile))
	out, err := rundir.NewTeacherWriter(a.output.FS, rundir.Teacher{Model: hash, Data: digest, TopK: d.TopK, Temperature: d.Temperature})
	if err != nil {
		return nil, err
	}
	m.Precision.Distill, m.Precision.JoinMemory = &stages.Distill{TopK: d.TopK, Temperature: d.Temperature}, true // records differ in length
	_, _, err = forward.Pass{Device: m.Device, Data: feed.Source, Context: feed.Context, Microbatch: a.cfg.Batch.Microbatch,
		Build: func(s tensorops.Stream) (actors.Compute, error) { return m.Stage(s) },
		Emit: func(first int, outputs []stages.Output) error {
			return writeTeacher(out, outputs, d.TopK, func(i int) int { return feed.Source.EvalLen(first + i) })
		}}.Run(ctx)
	if err != nil {
		out.Abort()
		return nil, err
	}
	return out.Commit()
}

// writeTeacher writes what the teacher says about a microbatch, without padding.
func writeTeacher(out *rundir.TeacherWriter, outputs []stages.Output, k int, length func(int) int) error {
	var ids, logp tensorops.Array
	for _, o := range outputs {
		switch o.Name {
		case stages.TeacherIDs:
			ids = o.Array
		case stages.TeacherLogP:
			logp = o.Array
		}
	}
	if len(ids.Shape) != 3 || len(logp.Shape) != 3 {
		return errors.New("the teacher collects no tokens")
	}
	positions := ids.Shape[1]
	for i := range ids.Shape[0] {
		for n := range length(i) {
			at := i*positions + n
			row := logp.Float[at*(k+1):][:k+1]
			for _, v := range row {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					return fmt.Errorf("the teacher gives a token the log-probability %g: its weights have diverged or are damaged", v)
				}
			}
			if err := out.Write(ids.Int[at*k:][:k], row); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTeacher rejects a teacher of another vocabulary, or with fewer positions.
func (a *Attempt) checkTeacher(m *trained.Model) error {
	c, own, theirs := a.cfg, a.plan.Model().Config, m.Shape.Config
	switch {
	case !theirs.Language():
		return c.Errorf("distill.from", "the teacher %s is not a language model", m.From())
	case own.Vocab != theirs.Vocab:
		return c.Errorf("distill.from", "the teacher %s has a vocabulary of %d tokens, but the model has %d; "+
			"a teacher must have the model's tokenizer", m.From(), theirs.Vocab, own.Vocab)
	}
	if id, differs := differentToken(a.data.Tokenizer, m.Tokenizer); differs {
		return c.Errorf("distill.from", "token %d of the teacher %s is %+q, but that of the model is %+q; "+
			"a teacher must have the model's tokenizer", id, m.From(), m.Tokenizer.Decode([]int32{id}), a.data.Tokenizer.Decode([]int32{id}))
	}
	if _, err := m.Lengthen(c.Model.Context); err != nil {
		return c.Errorf("distill.from", "the teacher: %w", err)
	}
	return nil
}

// differentToken returns the first token that differs between two tokenizers, if both are known.
func differentToken(a, b tokenizer.Tokenizer) (int32, bool) {
	if a == nil || b == nil {
		return 0, false
	}
	for id := range int32(min(a.Vocab(), b.Vocab())) {
		if !bytes.Equal(a.Decode([]int32{id}), b.Decode([]int32{id})) {
			return id, true
		}
	}
	return 0, false
}
