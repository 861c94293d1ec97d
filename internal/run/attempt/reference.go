package attempt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/forward"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// A loss of [preference] may compare the model with a reference model, which has the weights before the first step. Its
// log-probabilities of the answers never change, so one pass over the data computes them, in this process and before the first step.
// The run's folder keeps them.

// readReference reads the log-probabilities of the answers from the folder, or computes and writes them.
func (a *Attempt) readReference(ctx context.Context) error {
	to := a.data.Reference
	if to == nil {
		return nil
	}
	kept, err := rundir.ReadReference(a.output.FS)
	if err != nil {
		return err
	}
	digest, err := a.data.AnswersDigest()
	if err != nil {
		return err
	}
	if kept == nil && a.resumes() {
		return fmt.Errorf("%w: %s is missing, and without it the run cannot resume; restore the file, or start a new run in another folder",
			rundir.ErrReference, a.output.FS.Path(rundir.ReferenceFile))
	}
	if kept != nil && kept.Data == digest && a.resumes() {
		to.Train, to.Val = kept.Train, kept.Val
		return nil
	}
	r := referenceModel{Attempt: a}
	defer r.close()
	if err := r.open(); err != nil {
		return err
	}
	switch {
	case kept == nil:
	case kept.Model == r.hash && kept.Data == digest:
		to.Train, to.Val = kept.Train, kept.Val
		return nil
	case kept.Model != r.hash && a.resumes():
		return fmt.Errorf("%w: the data changed, and the weights of model.from are not those of the run's reference model; "+
			"restore the data or the weights", rundir.ErrReference)
	}
	if err := a.plan.CheckBefore(); err != nil {
		return err
	}
	answers := a.data.Answers()
	n := answers.EvalWindows()
	a.env.Prepare("computing the log-probabilities of %s (%s) under the reference model, once: %s keeps them",
		words.Plural(n, "answer"), words.Plural(n/2, "record"), a.output.FS.Path(rundir.ReferenceFile))
	logp, err := r.logProbabilities(ctx, answers)
	if err != nil {
		return err
	}
	to.Train, to.Val = logp[:a.data.TrainRecords.Len()], logp[a.data.TrainRecords.Len():]
	return rundir.WriteReference(a.output.FS, &rundir.Reference{Model: r.hash, Data: digest, Train: to.Train, Val: to.Val})
}

// referenceModel is the model with the weights before the first step.
type referenceModel struct {
	*Attempt
	load    stages.Source
	hash    string // of the weights and their types
	base    *checkpoint.Checkpoint
	adapter *peft.Directory
}

// open finds the weights.
func (r *referenceModel) open() (err error) {
	c, load := r.cfg, r.Attempt.load
	base := r.ckpt
	if r.resumes() {
		base, load, err = r.before()
	}
	if err != nil {
		return c.Errorf("model.from", "the reference model: %w", err)
	}
	r.load = load
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s %d\n", c.Device.DType, c.Device.Residual, c.Model.FrozenDType, c.Run.Seed)
	if base != nil {
		of := r.baseIs.SHA256 // with an adapter, a new run has read the whole base for it
		if r.resumes() || of == "" {
			if of, err = plan.BaseHash(base); err != nil {
				return err
			}
		}
		fmt.Fprintln(h, of)
	}
	if c.Adapter.From != "" {
		f, err := os.Open(filepath.Join(c.Adapter.From, peft.WeightsFile))
		if err != nil {
			return c.Errorf("adapter.from", "%w", err)
		}
		_, err = io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return c.Errorf("adapter.from", "%w", err)
		}
	}
	r.hash = hex.EncodeToString(h.Sum(nil))
	return nil
}

// before returns the weights from which a run that resumes has started.
func (r *referenceModel) before() (base *checkpoint.Checkpoint, load stages.Source, err error) {
	c, m := r.cfg, r.plan.Model()
	if c.Model.From == "" {
		return nil, stages.InitWeights(c.Run.Seed), nil
	}
	if base = r.Attempt.base; base == nil {
		if base, err = ggufmodel.OpenAt(c.Model.From); err != nil {
			return nil, nil, plan.MissingModel(err, c.Model.From)
		}
		r.base = base
	}
	switch {
	case c.Adapter.From != "":
		if r.adapter, err = peft.Read(c.Adapter.From); err != nil {
			return nil, nil, err
		}
		load, err = r.adapter.Weights(m, plan.Weights(base))
	case m.Config.Adapter != nil:
		load = plan.AdaptedWeights(base, nil, m, c.Run.Seed, plan.HeldType(c))
	default:
		load = plan.Weights(base)
	}
	return base, load, err
}

func (r *referenceModel) close() {
	if r.base != nil {
		_ = r.base.Close() // only read
	}
	if r.adapter != nil {
		_ = r.adapter.Close()
	}
}

// logProbabilities computes those of all answers.
func (r *referenceModel) logProbabilities(ctx context.Context, answers *corpus.Answers) ([]float64, error) {
	d := r.cfg.Device
	dev, err := device.OpenKind(device.Options{Threads: d.Threads, Kernels: d.Kernels})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	m, o := r.plan.Model(), r.plan.ReferenceOptions()
	logp := make([]float64, answers.EvalWindows())
	pass := forward.Pass{Device: dev, Data: answers, Context: r.cfg.Model.Context, Microbatch: r.cfg.Batch.Microbatch,
		Build: func(s tensorops.Stream) (actors.Compute, error) {
			st, err := stages.NewStage(m, s, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
			if err != nil {
				return nil, err
			}
			return st, st.Load(r.load, false)
		},
		Emit: func(first int, outputs []stages.Output) error {
			i := slices.IndexFunc(outputs, func(o stages.Output) bool { return o.Name == stages.LogProbabilities })
			for k := 0; i >= 0 && k < outputs[i].Len()/2; k++ {
				at, v := answers.Index(first+k), outputs[i].Double[2*k]
				if math.IsNaN(v) || math.IsInf(v, 0) {
					return fmt.Errorf("the reference model gives answer %d the log-probability %g: the weights have diverged or are damaged",
						at+1, v)
				}
				logp[at] = v
			}
			return nil
		}}
	_, _, err = pass.Run(ctx)
	return logp, err
}
