package plan

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Before is a pass over the data that one process computes on its CPU, once and before the first step: that of the reference model of
// [preference], or that of the teacher of [distill]. The ranks take their memory after it.
type Before struct {
	What  string `json:"what"`
	Bytes int64  `json:"bytes"` // of tensors, for the whole model and a microbatch

	key, advice string
}

// Before returns the pass before the first step; nil: there is none.
func (p *Plan) Before() (b *Before, err error) {
	switch c := p.cfg; {
	case c.PreferenceLoss().NeedsReference():
		b = &Before{What: "the reference model", key: "preference.loss",
			advice: "free memory, use a smaller batch.microbatch, or use orpo or simpo, which need no reference model"}
		b.Bytes, err = p.forwardBytes(p.model, p.ReferenceOptions())
	case c.Distill.From != "":
		b = &Before{What: "the teacher", key: "distill.from", advice: "free memory, or use a smaller batch.microbatch or a smaller teacher"}
		var m *stages.Model
		var o stages.Options
		if m, o, err = p.teacher(); err == nil {
			b.Bytes, err = p.forwardBytes(m, o)
		}
	default:
		return nil, nil
	}
	switch {
	case errors.Is(err, tensorops.ErrOutOfMemory):
		return nil, p.cfg.Errorf(b.key, "%w on any machine: %s: %v", ErrMemory, b.What, err)
	case err != nil:
		return nil, p.cfg.Errorf(b.key, "%s: %w", b.What, err)
	}
	return b, nil
}

// CheckBefore rejects a pass before the first step that does not fit this machine's free memory. device.memory_gib does not limit it: that
// is the memory of each rank, and the pass is none and ends before ranks take memory.
func (p *Plan) CheckBefore() error {
	b, err := p.Before()
	if err != nil || b == nil {
		return err
	}
	free := device.HostFreeBytes()
	if free == 0 || b.Bytes <= free {
		return nil
	}
	return p.cfg.Errorf(b.key, "%w: before the first step one process computes %s on its CPU and needs %s, but this machine has %s free; %s",
		ErrMemory, b.What, words.Bytes(b.Bytes), words.Bytes(free), b.advice)
}

// MissingTeacher reports whether an error of Before says that the teacher's folder does not exist. A run that resumes needs none.
func (p *Plan) MissingTeacher(err error) bool {
	return err != nil && isMissing(err, p.cfg.Distill.From)
}

// ReferenceOptions are the options of the stage that computes the reference model.
func (p *Plan) ReferenceOptions() stages.Options {
	o := stages.Options{Inference: true, Preference: &stages.Preference{}}
	SetPrecision(&o, p.cfg)
	o.LowWeights, o.JoinMemory = o.BF16, true // answers differ in length
	return o
}

// teacher reads the sizes of the teacher and its number types, as package trained does.
func (p *Plan) teacher() (m *stages.Model, o stages.Options, err error) {
	from := p.cfg.Distill.From
	c, err := ggufmodel.OpenAt(from)
	if err != nil {
		return nil, o, MissingModel(err, from)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	sizes, err := ReadModel(c)
	if err != nil {
		return nil, o, fmt.Errorf("%s: %w", c.Dir(), err)
	}
	is, err := rundir.ReadAdapted(c)
	if err != nil {
		return nil, o, err
	}
	if is != nil {
		sizes.Adapter = is.Adapter
	}
	if n := p.cfg.Model.Context; n > sizes.Context && n <= sizes.Positions() {
		sizes.Context, sizes.MaxPositions = n, sizes.Positions()
	}
	if o, err = Precision(c, "", sizes.Language()); err != nil {
		return nil, o, err
	}
	o.Inference, o.LowWeights, o.JoinMemory = true, o.BF16, true
	o.Distill = &stages.Distill{TopK: p.cfg.Distill.TopK, Temperature: p.cfg.Distill.Temperature}
	m, err = stages.NewModel(sizes)
	return m, o, err
}

// forwardBytes returns the tensor memory of a whole model that computes a microbatch forward. It records the pass without executing it.
func (p *Plan) forwardBytes(m *stages.Model, o stages.Options) (bytes int64, err error) {
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.DryLoad(); err != nil {
		return 0, err
	}
	b, t := p.cfg.Batch.Microbatch, min(p.cfg.Model.Context, m.Config.Context)
	l, ids := dry.NewList(), make([]int32, b*t)
	st.Forward(l, 0, &stages.Microbatch{Step: 1, Sequences: b, Positions: t, Tokens: ids, Targets: ids, Collect: true})
	if err := tensorops.Run(dry, l); err != nil {
		return 0, err
	}
	return dry.Memory().Taken, nil
}
