package plan

import (
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/stages"
)

// checkMuon checks that Muon has matrices to train, and that the ranks compute on the CPU.
func (p *Plan) checkMuon() error {
	c := p.cfg
	if !c.Muon() {
		return nil
	}
	key := "optimizer.name"
	for i, g := range c.Optimizer.Group {
		if c.Optimizer.Name != stages.Muon && g.Name == stages.Muon {
			key = groupKey(i, "name")
		}
	}
	if r, found := p.gpuStage(); found {
		return c.Errorf(key, "\"muon\" computes only on the CPU, but stage %d is on a GPU; set %s = \"cpu\", "+
			"or name = \"adamw\"", r, device.Key(c))
	}
	if Optimizer(c).MuonLen(p.model) > 0 {
		return nil
	}
	if key != "optimizer.name" {
		return c.Errorf(key, "\"muon\" has nothing to train: none of its weights "+
			"is a trained hidden matrix of a language model; set name = \"adamw\"")
	}
	switch {
	case !p.model.Config.Language():
		return c.Errorf("optimizer.name", "\"muon\" trains the hidden matrices of language models, and family %q is none; "+
			"set name = \"adamw\"", c.Model.Family)
	case p.model.Config.Adapter != nil:
		return c.Errorf("optimizer.name", "\"muon\" has nothing to train: AdamW trains the matrices of an adapter, and all others are "+
			"frozen; set name = \"adamw\"")
	}
	return c.Errorf("optimizer.name", "\"muon\" has nothing to train: model.freeze keeps all hidden matrices; set name = \"adamw\", "+
		"or freeze less")
}
