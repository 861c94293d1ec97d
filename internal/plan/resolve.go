package plan

import (
	"cmp"
	"errors"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// CostFunc returns the cost of a layer's pass for a microbatch, in any unit. B is a
// backward pass in one piece.
type CostFunc func(layer scheduler.Symbol, pass scheduler.Type) float64

// VocabBytes is the size of the vocabulary of bytes.
const VocabBytes = 256

// Resolve returns the plan of a configuration without its data. If the vocabulary depends on the text, its size is assumed
// to be that of bytes. cost balances the layers over the stages if the configuration has no layout, and is the input of
// the schedule auto; nil: the cost of the arithmetic.
func Resolve(cfg *config.Config, cost CostFunc) (*Plan, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg, ckpt, err := LoadFrom(cfg)
	if err != nil {
		return nil, err
	}
	var from stages.Config
	if ckpt != nil {
		from, err = ReadModel(ckpt)
		if err := errors.Join(err, ckpt.Close()); err != nil {
			return nil, err
		}
	}
	vocab, err := VocabOf(cfg)
	if err != nil {
		return nil, err
	}
	if from.Fields, err = FieldsOf(cfg, vocab); err != nil {
		return nil, err
	}
	return newBy(cfg, vocab, from, cost)
}

// VocabOf returns the size of the vocabulary before the text is read: for the tokenizer
// chars it is assumed to be that of bytes.
func VocabOf(cfg *config.Config) (int, error) {
	if cfg.Model.Vocab > 0 || !cfg.Text() || cfg.TokenizerPath() == "" {
		return cmp.Or(cfg.Model.Vocab, VocabBytes), nil
	}
	t, err := rundir.OpenTokenizer(cfg.TokenizerPath())
	if err != nil {
		return 0, cfg.Errorf("data.tokenizer", "%w", err)
	}
	return t.Vocab(), nil
}

// Config returns the configuration, with the shape from model.from.
func (p *Plan) Config() *config.Config { return p.cfg }

// Table returns the order of every rank's actions.
func (p *Plan) Table() *scheduler.Table { return p.table }

// Report returns what the checker found out about the table.
func (p *Plan) Report() *scheduler.Report { return p.report }

// BubbleFraction returns the table's bubble at unit costs, from 0 to 1.
func (p *Plan) BubbleFraction() float64 { return p.bubble }

// Layout returns the layers of each chunk.
func (p *Plan) Layout() *scheduler.Layout { return p.layout }

// Model returns the layers and parameters.
func (p *Plan) Model() *stages.Model { return p.model }

// Chunks returns the chunks of a stage.
func (p *Plan) Chunks(rank int) []stages.ChunkSpec { return p.chunks[rank] }

// DeviceKind returns the kind of a stage's device: device.CPU or device.CUDA.
func (p *Plan) DeviceKind(rank int) string { return device.KindOf(p.cfg, rank) }

// Parameters returns, for each stage, the number of weights that it uses. A weight that two
// stages use counts on both.
func (p *Plan) Parameters() []int64 { return p.perRank(p.model.ParametersOf) }

// Trained returns, for each stage, the number of weights that it updates.
func (p *Plan) Trained() []int64 { return p.perRank(p.model.TrainedOf) }

func (p *Plan) perRank(of func([]stages.ChunkSpec) int64) []int64 {
	counts := make([]int64, len(p.chunks))
	for r, chunks := range p.chunks {
		counts[r] = of(chunks)
	}
	return counts
}

// FreeBytes returns the free memory of this machine's device in bytes; 0: not known.
func (p *Plan) FreeBytes() (int64, error) {
	if p.DeviceKind(0) != device.CUDA {
		return device.HostFreeBytes(), nil
	}
	d, err := device.Open(p.cfg)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return device.FreeBytes(d), nil
}
