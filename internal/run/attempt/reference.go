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
	a.env.Warn("computing the log-probabilities of %s under the reference model, once: %s keeps them",
		words.Plural(a.data.TrainRecords.Len()+a.data.ValRecords.Len(), "answer"), a.output.FS.Path(rundir.ReferenceFile))
	if to.Train, err = r.logProbabilities(ctx, false); err != nil {
		return err
	}
	if to.Val, err = r.logProbabilities(ctx, true); err != nil {
		return err
	}
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
		of, err := plan.BaseHash(base)
		if err != nil {
			return err
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

// checkMemory checks that the whole model and a microbatch fit the memory.
func (r *referenceModel) checkMemory(dev device.Device, o stages.Options) error {
	m, b, t := r.plan.Model(), r.cfg.Batch.Microbatch, r.cfg.Model.Context
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
	if err != nil {
		return err
	}
	l, ids := dry.NewList(), make([]int32, b*t)
	st.Forward(l, 0, &stages.Microbatch{Sequences: b, Positions: t, Tokens: ids, Targets: ids})
	if err := tensorops.Run(dry, l); err != nil {
		return err
	}
	if need, free := float64(dry.Memory().Taken), device.FreeBytes(dev); free > 0 && need > float64(free) {
		return r.cfg.Errorf("preference.loss", "%w: the reference model is computed by this process alone and needs %s, but this machine "+
			"has %s free; free memory, or use orpo or simpo, which need no reference model", plan.ErrMemory, plan.GiB(need),
			plan.GiB(float64(free)))
	}
	return nil
}

// logProbabilities computes those of the answers to train on, or to validate on.
func (r *referenceModel) logProbabilities(ctx context.Context, validation bool) ([]float64, error) {
	feed := r.data.AnswerFeed(validation, r.cfg.Model.Context)
	if feed.Windows == 0 {
		return nil, nil
	}
	d := r.cfg.Device
	dev, err := device.OpenKind(device.Options{Threads: d.Threads, Kernels: d.Kernels})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	o := stages.Options{Inference: true, Preference: &stages.Preference{}}
	plan.SetPrecision(&o, r.cfg)
	o.LowWeights = o.BF16
	m := r.plan.Model()
	if err := r.checkMemory(dev, o); err != nil {
		return nil, err
	}
	logp := make([]float64, feed.Windows)
	pass := forward.Pass{Device: dev, Data: feed.Source, Context: feed.Context, Microbatch: r.cfg.Batch.Microbatch,
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
				v := outputs[i].Double[2*k]
				if math.IsNaN(v) || math.IsInf(v, 0) {
					return fmt.Errorf("the reference model gives answer %d the log-probability %g: the weights have diverged or are damaged",
						first+k+1, v)
				}
				logp[first+k] = v
			}
			return nil
		}}
	_, _, err = pass.Run(ctx)
	return logp, err
}
