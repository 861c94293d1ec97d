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

// CostFunc is what a pass of one layer takes for a microbatch, in any unit. B is the
// backward in one piece.
type CostFunc func(layer scheduler.Symbol, pass scheduler.Type) float64

// VocabBytes is the vocabulary of bytes.
const VocabBytes = 256

// Resolve makes the plan of a configuration without its data: a vocabulary that the text
// would tell is taken to be that of bytes. cost is what the layers are spread over the
// stages by where the configuration doesn't say, and what the schedule auto
// goes by; nil: by their arithmetic.
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

// VocabOf is the vocabulary's size, as far as it is known before the text is read: of
// characters it is taken to be that of bytes.
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

// Config is the configuration, with the sizes of the checkpoint that it begins from.
func (p *Plan) Config() *config.Config { return p.cfg }

// Table is the order of every rank's actions.
func (p *Plan) Table() *scheduler.Table { return p.table }

// Report is what the checker found out about the table.
func (p *Plan) Report() *scheduler.Report { return p.report }

// BubbleFraction is the table's bubble at unit costs.
func (p *Plan) BubbleFraction() float64 { return p.bubble }

// Layout says which layers a chunk holds.
func (p *Plan) Layout() *scheduler.Layout { return p.layout }

// Model lists the layers and the parameters.
func (p *Plan) Model() *stages.Model { return p.model }

// Chunks are those of a rank.
func (p *Plan) Chunks(rank int) []stages.ChunkSpec { return p.chunks[rank] }

// DeviceKind is that of a rank's device: device.CPU or device.CUDA.
func (p *Plan) DeviceKind(rank int) string { return device.KindOf(p.cfg, rank) }

// Parameters is, for each rank, the number of weights that it uses. A weight that two
// ranks use counts on both.
func (p *Plan) Parameters() []int64 { return p.perRank(p.model.ParametersOf) }

// Trained is, for each rank, the number of those that it updates.
func (p *Plan) Trained() []int64 { return p.perRank(p.model.TrainedOf) }

func (p *Plan) perRank(of func([]stages.ChunkSpec) int64) []int64 {
	counts := make([]int64, len(p.chunks))
	for r, chunks := range p.chunks {
		counts[r] = of(chunks)
	}
	return counts
}

// FreeBytes is the memory that a run may take on its device here; 0: not known.
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
