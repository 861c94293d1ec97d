package troupe

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// ModelOptions say which trained model to use, and on what.
type ModelOptions struct {
	From    string // a run's output folder, a checkpoint, or any Hugging Face directory of a known family
	Device  string // "cuda", or a GPU by its number, such as "cuda:1"; else the CPU
	Threads int    // 0: all cores
	Kernels string // "": the best
	// DType is what to compute in, "float32" or "bfloat16"; "": what the run computed in that the
	// model is from, or float32.
	DType string
}

// trained is an open model.
type trained struct {
	ckpt   *checkpoint.Checkpoint
	model  *stages.Model
	device device.Device
	// precision has the types to compute in.
	precision stages.Options

	tokenizer   tokenizer.Tokenizer // nil: none that is known
	noTokenizer error               // why it is not known
	said        *modelText          // nil: not read yet, see text; where several use the model it is there
	warned      bool                // warnOnce has said its warnings

	weights *stages.Stage // the whole model, on device; nil: not made yet
	whence  string        // where the weights are from, where there is no ckpt
}

// openTrained opens a model; tokenize says that it must have a tokenizer that
// this program knows.
func openTrained(o ModelOptions, tokenize bool) (t *trained, err error) {
	t = &trained{}
	defer func() {
		if err != nil {
			err = &SetupError{Err: errors.Join(err, t.close())}
		}
	}()
	if t.ckpt, err = checkpoint.OpenAt(o.From); err != nil {
		return t, err
	}
	c, err := plan.ReadModel(t.ckpt)
	if err != nil {
		return t, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
	}
	if t.model, err = stages.NewModel(c); err != nil {
		return t, err
	}
	if tokenize && !c.Language() {
		return t, fmt.Errorf("%w: %s is no language model but of the family %q, which writes no text; engine predict runs it on samples", ErrOptions, t.ckpt.Dir(), c.Family)
	}
	if o.DType != "" && o.DType != "float32" && o.DType != "bfloat16" {
		return t, fmt.Errorf("%w: the dtype %q; it is float32 or bfloat16", ErrOptions, o.DType)
	}
	if t.precision, err = plan.Precision(t.ckpt, o.DType, c.Language()); err != nil {
		return t, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
	}
	if t.tokenizer, t.noTokenizer = rundir.ReadTokenizer(t.ckpt); t.noTokenizer != nil && (tokenize || checkpoint.TryAgain(t.noTokenizer)) {
		return t, fmt.Errorf("%s: %w", t.ckpt.Dir(), t.noTokenizer)
	}
	if t.tokenizer == nil && tokenize {
		return t, fmt.Errorf("%s has no %s, which is needed to read and write text", t.ckpt.Dir(), rundir.TokensFile)
	}
	if err := plan.CheckWeights(t.ckpt, t.model, nil); err != nil {
		return t, err
	}
	if t.tokenizer != nil && t.tokenizer.Vocab() > c.Vocab {
		return t, fmt.Errorf("%s: the tokenizer has %d ids, the model %d", t.ckpt.Dir(), t.tokenizer.Vocab(), c.Vocab)
	}
	if tokenize {
		if _, err := t.text(); err != nil {
			return t, err
		}
	}
	kind, ordinal := config.SplitDevice(o.Device)
	if t.device, err = device.OpenKind(device.Options{Kind: kind, Ordinal: max(0, ordinal), Threads: o.Threads, Kernels: o.Kernels}); err != nil {
		return t, err
	}
	return t, nil
}

// stage makes the whole model one chunk, without gradients.
func (t *trained) stage(s tensorops.Stream) (*stages.Stage, error) {
	st, err := t.empty(s)
	if err != nil {
		return nil, err
	}
	return st, st.Load(plan.Weights(t.ckpt), false)
}

// empty is stage without its weights.
func (t *trained) empty(s tensorops.Stream) (*stages.Stage, error) {
	whole := []stages.ChunkSpec{{Chunk: 0, First: 0, Last: len(t.model.Symbols())}}
	o := t.precision
	o.Inference = true
	o.LowWeights = o.BF16 && t.ckpt != nil // a run copies float32
	return stages.NewStage(t.model, s, whole, o)
}

// checkMemory refuses what does not fit the device: the model, and what use makes of it,
// which is recorded without executing it. what names the use.
func (t *trained) checkMemory(what string, use func(s tensorops.Stream, st *stages.Stage) error) error {
	dry := tensorops.NewDryStream()
	st, err := t.empty(dry)
	var there int64 // of the weights, where the device has them already
	if t.weights != nil {
		there = dry.Memory().Taken
	}
	if err == nil {
		err = use(dry, st)
	}
	if errors.Is(err, tensorops.ErrOutOfMemory) {
		return &SetupError{Err: fmt.Errorf("%w on any machine: %s: %s: %w", ErrMemory, t.from(), what, err)}
	}
	if err != nil {
		return err
	}
	need, free := float64(dry.Memory().Taken-there), device.FreeBytes(t.device)
	if free > 0 && need > float64(free) {
		return &SetupError{Err: fmt.Errorf("%w: the %d parameters of %s and %s take %s, the device has %s free",
			ErrMemory, t.model.Config.Parameters(), t.from(), what, plan.GiB(need), plan.GiB(float64(free)))}
	}
	return nil
}

// from names where the model is from, for people.
func (t *trained) from() string {
	if t.ckpt == nil {
		return t.whence
	}
	return t.ckpt.Dir()
}

// suspicion says what is wrong, most likely, with a model that computes no numbers.
func (t *trained) suspicion() string {
	return fmt.Sprintf("the weights in %s have diverged or are damaged; take an earlier checkpoint, such as the best one of the run", t.from())
}

func (t *trained) close() (err error) {
	if t.weights != nil {
		err = t.weights.Close()
	}
	if t.device != nil {
		t.device.Close()
	}
	if t.ckpt != nil {
		err = errors.Join(err, t.ckpt.Close())
	}
	return err
}
