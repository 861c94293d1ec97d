package troupe

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// LayerCost is what a pass of one layer takes for a microbatch, in any unit. B is the
// backward in one piece.
type LayerCost func(layer scheduler.Symbol, pass scheduler.Type) float64

// Blueprint is what a configuration comes to before anything is trained: the model,
// which rank holds which layers, the order of every rank's actions, and the memory
// that they take.
type Blueprint struct{ plan *plan }

// NewBlueprint resolves a configuration, without its data: a vocabulary that the text
// would tell is taken to be that of bytes. cost is what the layers are spread over the
// stages by where the configuration doesn't say, and what the schedules auto and dynamic
// go by; nil: by their arithmetic. What cannot be met is a *SetupError.
func NewBlueprint(cfg *config.Config, cost LayerCost) (*Blueprint, error) {
	own := *cfg // what is adopted is not the caller's
	b, err := newBlueprint(&own, cost)
	if err != nil {
		return nil, &SetupError{err}
	}
	return b, nil
}

func newBlueprint(cfg *config.Config, cost LayerCost) (*Blueprint, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ckpt, err := adoptModel(cfg)
	if err != nil {
		return nil, err
	}
	if ckpt != nil {
		if err := ckpt.Close(); err != nil {
			return nil, err
		}
	}
	vocab := cfg.Model.Vocab
	if vocab == 0 {
		vocab = vocabBytes
	}
	p, err := newPlanBy(cfg, vocab, 0, cost)
	if err != nil {
		return nil, err
	}
	return &Blueprint{p}, nil
}

// vocabBytes is the vocabulary of bytes.
const vocabBytes = 256

// Config is the configuration, with the sizes of the checkpoint that it begins from.
func (b *Blueprint) Config() *config.Config { return b.plan.cfg }

// Table is the order of every rank's actions.
func (b *Blueprint) Table() *scheduler.Table { return b.plan.table }

// Report is what the checker found out about the table.
func (b *Blueprint) Report() *scheduler.Report { return b.plan.report }

// Layout says which layers a virtual stage holds.
func (b *Blueprint) Layout() *scheduler.Layout { return b.plan.layout }

// Model lists the layers and the parameters.
func (b *Blueprint) Model() *stages.Model { return b.plan.model }

// StageOptions are those of a rank's stage.
func (b *Blueprint) StageOptions(rank int) stages.Options { return b.plan.stageOptions(rank) }

// DeviceKind is that of a rank's device: "cpu" or "cuda".
func (b *Blueprint) DeviceKind(rank int) string { return kindOf(b.plan.cfg, rank) }

// Recomputes says whether a rank computes a microbatch's activations twice.
func (b *Blueprint) Recomputes() func(rank, microbatch int) bool {
	if f := b.plan.recompute(); f != nil {
		return f
	}
	return func(int, int) bool { return false }
}

// HeadLater says whether a microbatch's weight gradient of the head waits for the end of
// the step.
func (b *Blueprint) HeadLater() func(microbatch int) bool {
	if f := b.plan.headLater(); f != nil {
		return f
	}
	return func(int) bool { return false }
}

// MemoryBytes is, for each rank, the memory of its tensors: weights, gradients, the
// optimizer's state, and at the peak all that is saved for backward passes. It is found
// by recording the rank's actions without executing them.
func (b *Blueprint) MemoryBytes() ([]int64, error) { return b.plan.memoryBytes() }

// Parameters is, for each rank, the number of weights that it updates. A weight that two
// ranks use counts on both.
func (b *Blueprint) Parameters() []int64 {
	counts := make([]int64, len(b.plan.chunks))
	for r, chunks := range b.plan.chunks {
		counts[r] = b.plan.model.ParametersOf(chunks)
	}
	return counts
}

// CheckpointBytes is the device's memory that a copy of so many weights and of their
// optimizer's state takes while a checkpoint is written: none of a GPU's.
func (b *Blueprint) CheckpointBytes(parameters int64) int64 {
	if b.DeviceKind(0) == kindCUDA {
		return 0
	}
	return b.plan.checkpointBytes(parameters)
}

// FreeBytes is the memory that a run may take on its device here; 0: not known.
func (b *Blueprint) FreeBytes() (int64, error) {
	if b.DeviceKind(0) != kindCUDA {
		return freeMemory(), nil
	}
	d, err := OpenDevice(b.plan.cfg)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return memoryFor(d), nil
}
