package attempt

import (
	"errors"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// ReadData reads the data of a configuration as a new run would, and describes it. It needs no output folder.
func ReadData(cfg *config.Config) (info event.Info, warnings []string, err error) {
	if err := cfg.Validate(); err != nil {
		return info, nil, err
	}
	a := &Attempt{}
	if a.cfg, a.ckpt, err = plan.LoadFrom(cfg); err != nil {
		return info, nil, err
	}
	if a.ckpt != nil {
		defer func() { err = errors.Join(err, a.ckpt.Close()) }()
	}
	if err := a.loadData(nil, nil); err != nil {
		return info, nil, err
	}
	defer func() { err = errors.Join(err, a.data.Close()) }()
	if err := corpus.CheckVocab(a.cfg, a.Tokenizer); err != nil {
		return info, nil, err
	}
	info = event.Info{TrainTokens: a.data.TrainLen(), ValTokens: a.data.ValLen(), Samples: !a.cfg.Text(), Documents: a.data.Documents,
		Packing: a.data.Packing}
	if a.readsText() {
		info.Text = a.Text.Describe()
	}
	return info, a.dataWarnings(), nil
}
