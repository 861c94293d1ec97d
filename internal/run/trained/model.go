package trained

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Options say which trained model to open, and on which device. They have the fields of infer.ModelOptions.
type Options struct {
	From string
	// EMA uses the moving averages of the weights: see plan.UseAverage.
	EMA bool
	// Adapter is a directory of PEFT with an adapter of the model; "": none.
	Adapter string
	Device  string
	Threads int
	Kernels string
	DType   string
	// ChatTemplate replaces the model's chat template: see rundir.ChosenTemplate.
	ChatTemplate string
}

// Model is an open model.
type Model struct {
	Checkpoint *checkpoint.Checkpoint // that it was opened from; nil: weights are copied
	Shape      *stages.Model
	Device     device.Device
	// Precision has the number types.
	Precision stages.Options

	Tokenizer   tokenizer.Tokenizer // nil: not known
	NoTokenizer error               // why it is not known
	template    rundir.Template     // that the user has chosen
	text        *corpus.Text        // nil: not read yet, see Text
	warned      bool                // WarnOnce has been called

	weights stages.Source // of Shape, in the files
	adapter *Adapted

	Weights *stages.Stage // the whole model, on Device; nil: not made yet
	Source  string        // the origin of the weights without a Checkpoint
}

// Open opens a model. With tokenize it must be a language model with a
// supported tokenizer.
func Open(o Options, tokenize bool) (t *Model, err error) {
	t = &Model{}
	defer func() {
		if err != nil {
			err = &plan.SetupError{Err: errors.Join(err, t.Close())}
		}
	}()
	if t.Checkpoint, err = ggufmodel.OpenAt(o.From); err != nil {
		return t, plan.MissingModel(err, o.From)
	}
	if o.EMA {
		if err = plan.UseAverage(t.Checkpoint); err != nil {
			return t, err
		}
	}
	if t.template, err = chosenTemplate(o); err != nil {
		return t, err
	}
	c, err := plan.ReadModel(t.Checkpoint)
	if err != nil {
		return t, fmt.Errorf("%s: %w", t.Checkpoint.Dir(), err)
	}
	if t.adapter, err = OpenAdapted(t.Checkpoint, o.Adapter, &c); err != nil {
		return t, err
	}
	if t.Shape, err = stages.NewModel(c); err != nil {
		return t, err
	}
	if tokenize && !c.Language() {
		return t, fmt.Errorf("%w: %s is not a language model: family %q does not generate text; use engine predict",
			plan.ErrOptions, t.Checkpoint.Dir(), c.Family)
	}
	if o.DType != "" && o.DType != "float32" && o.DType != "bfloat16" {
		return t, fmt.Errorf("%w: unknown dtype %q; use float32 or bfloat16", plan.ErrOptions, o.DType)
	}
	if t.Precision, err = plan.Precision(t.Checkpoint, o.DType, c.Language()); err != nil {
		return t, fmt.Errorf("%s: %w", t.Checkpoint.Dir(), err)
	}
	if t.Tokenizer, t.NoTokenizer = rundir.ReadTokenizer(t.Checkpoint); t.NoTokenizer != nil &&
		(tokenize || checkpoint.TryAgain(t.NoTokenizer)) {
		return t, fmt.Errorf("%s: %w", t.Checkpoint.Dir(), t.NoTokenizer)
	}
	if t.Tokenizer == nil && tokenize {
		return t, fmt.Errorf("%s has no %s, which is needed to encode and decode text", t.Checkpoint.Dir(), rundir.TokensFile)
	}
	if t.weights, err = t.adapter.Source(t.Checkpoint, t.Shape); err != nil {
		return t, err
	}
	if t.Tokenizer != nil && t.Tokenizer.Vocab() > c.Vocab {
		return t, fmt.Errorf("%s: the tokenizer has %d ids, but the model has %d", t.Checkpoint.Dir(), t.Tokenizer.Vocab(), c.Vocab)
	}
	if tokenize {
		if _, err := t.Text(); err != nil {
			return t, err
		}
	}
	kind, ordinal := config.SplitDevice(o.Device)
	if t.Device, err = device.OpenKind(device.Options{Kind: kind, Ordinal: max(0, ordinal), Threads: o.Threads,
		Kernels: o.Kernels}); err != nil {
		return t, err
	}
	return t, nil
}

// Stage returns a stage with the whole model as one chunk, without gradients.
func (t *Model) Stage(s tensorops.Stream) (*stages.Stage, error) {
	st, err := t.empty(s)
	if err != nil {
		return nil, err
	}
	return st, st.Load(t.weights, false)
}

// empty is Stage without loading the weights.
func (t *Model) empty(s tensorops.Stream) (*stages.Stage, error) {
	whole := []stages.ChunkSpec{{Chunk: 0, First: 0, Last: len(t.Shape.Symbols())}}
	o := t.Precision
	o.Inference = true
	o.LowWeights = o.BF16 && t.Checkpoint != nil // a run copies float32
	return stages.NewStage(t.Shape, s, whole, o)
}

// CheckMemory checks that the model and its use fit the device. use records the operations, which
// are not executed. what names the use in the error. promised is the part of the allocated memory that nothing was written to: the
// memory of the host is still free there.
func (t *Model) CheckMemory(what string, promised int64, use func(s *tensorops.DryStream, st *stages.Stage) error) error {
	dry := tensorops.NewDryStream()
	st, err := t.empty(dry)
	var there int64 // of the weights, if they are on the device already
	if t.Weights != nil {
		there = dry.Memory().Taken
	}
	if err == nil {
		err = use(dry, st)
	}
	if errors.Is(err, tensorops.ErrOutOfMemory) {
		return &plan.SetupError{Err: fmt.Errorf("%w on any machine: %s: %s: %w", plan.ErrMemory, t.From(), what, err)}
	}
	if err != nil {
		return err
	}
	need, free := float64(dry.Memory().Taken-there), device.FreeBytes(t.Device)
	if free > 0 && promised > 0 && device.TakesLate(t.Device) {
		free = max(free-promised, 1) // 0 is unknown
	}
	if free > 0 && need > float64(free) {
		return &plan.SetupError{Err: fmt.Errorf("%w: the %d parameters of %s and %s need %s, but the device has %s free",
			plan.ErrMemory, t.Shape.Config.Parameters(), t.From(), what, plan.GiB(need), plan.GiB(float64(free)))}
	}
	return nil
}

// From returns the origin of the model, for messages.
func (t *Model) From() string {
	if t.Checkpoint == nil {
		return t.Source
	}
	return t.Checkpoint.Dir()
}

// Suspicion returns the likely cause if a model computes NaN or infinity.
func (t *Model) Suspicion() string {
	return fmt.Sprintf("the weights in %s have diverged or are damaged; use an earlier checkpoint, such as the best one of the run", t.From())
}

// Close frees the model.
func (t *Model) Close() (err error) {
	if t.Weights != nil {
		err = t.Weights.Close()
	}
	if t.Device != nil {
		t.Device.Close()
	}
	err = errors.Join(err, t.adapter.Close())
	if t.Checkpoint != nil {
		err = errors.Join(err, t.Checkpoint.Close())
	}
	return err
}
