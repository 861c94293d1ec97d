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
	stored, err := a.storedTokenizer()
	if err != nil {
		return info, nil, err
	}
	if a.kept, err = a.keep(); err != nil {
		return info, nil, err
	}
	talk, err := a.readTalk(stored)
	if err != nil {
		return info, nil, err
	}
	if a.data, err = corpus.Load(a.cfg, stored, talk, nil, nil); err != nil {
		return info, nil, err
	}
	defer func() { err = errors.Join(err, a.data.Close()) }()
	if err := corpus.CheckVocab(a.cfg, a.data.Tokenizer); err != nil {
		return info, nil, err
	}
	info = event.Info{TrainTokens: a.data.TrainLen(), ValTokens: a.data.ValLen(), Samples: !a.cfg.Text(), Documents: a.data.Documents}
	if a.readsText() {
		text := corpus.NewText(a.data.Tokenizer, talk, a.cfg.Data.SpecialTokens)
		info.Text, warnings = text.Describe(), text.Warnings()
	}
	return info, append(warnings, a.data.Warnings...), nil
}
