package plan

import (
	"errors"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// LoadFrom returns the configuration with the shape and the tokenizer of model.from, and that checkpoint, open. The
// checkpoint is nil without model.from.
func LoadFrom(cfg *config.Config) (*config.Config, *checkpoint.Checkpoint, error) {
	if cfg.Model.From == "" {
		return cfg, nil, nil
	}
	ckpt, err := ggufmodel.OpenAt(cfg.Model.From)
	if err != nil {
		return nil, nil, cfg.Errorf("model.from", "%w", missingFrom(cfg, err))
	}
	shaped, err := LoadShape(cfg, ckpt)
	if err != nil {
		return nil, nil, errors.Join(err, ckpt.Close())
	}
	return shaped, ckpt, nil
}

// LoadShape returns the configuration with the shape and the tokenizer of a checkpoint: that of model.from, or a
// checkpoint of the run, which has the same.
func LoadShape(cfg *config.Config, from *checkpoint.Checkpoint) (*config.Config, error) {
	m, err := ReadModel(from)
	if err != nil {
		return nil, cfg.Errorf("model.from", "%s: %w", from.Dir(), err)
	}
	if m.Family == stages.GPT2 {
		m.RopeTheta = unusedRopeTheta
	}
	if m.Language() {
		if m.Context, err = contextOf(cfg, m); err != nil {
			return nil, err
		}
	}
	shape := config.Model{Family: m.Family, Layers: m.Layers, Hidden: m.Hidden, Heads: m.Heads, KVHeads: m.KVHeads,
		FFN: m.FFN, HeadDim: m.HeadDim, Window: m.Window,
		Context: m.Context, Vocab: m.Vocab, TieEmbeddings: m.Tie, RopeTheta: m.RopeTheta, MTPLayers: m.MTPLayers,
		Stack: m.Layout, Options: m.Options}
	expertShape(m, &shape)
	shaped, err := cfg.WithShape(shape)
	if err != nil {
		return nil, err
	}
	if shaped, err = withAdapter(shaped, from, m); err != nil {
		return nil, err
	}
	if cfg.Data.Format != "text" && !cfg.Documents() || cfg.TokenizerPath() != "" { // the user has chosen a tokenizer
		return shaped, nil
	}
	// The weights belong to the ids of the tokenizer that they were trained with.
	const otherwise = "give the text as token ids (data.format = \"uint16\")"
	t, err := rundir.ReadTokenizer(from)
	switch {
	case errors.Is(err, tokenizer.ErrUnsupported):
		return nil, cfg.Errorf("model.from", "%s: %w; %s", from.Dir(), err, otherwise)
	case err != nil:
		return nil, cfg.Errorf("model.from", "%s: %w", from.Dir(), err)
	case t == nil && !cfg.IsSet("data.tokenizer"):
		return nil,
			cfg.Errorf("model.from", "%s has no %s, so the ids of its tokens are not known; %s, or name the tokenizer in data.tokenizer",
				from.Dir(), rundir.TokensFile, otherwise)
	case t == nil || t.Name() == cfg.Data.Tokenizer:
		return shaped, nil
	}
	if cfg.IsSet("data.tokenizer") {
		return nil, cfg.Errorf("data.tokenizer",
			"%q, but the model in model.from was trained with %q; leave the key out, or start from another checkpoint", cfg.Data.Tokenizer, t.Name())
	}
	name := t.Name()
	if name == tokenizer.HFName {
		name = config.TokenizerAt(cfg.Model.From)
	}
	return shaped.WithTokenizer(name), nil
}

// contextOf returns the context to train a model with: that of the configuration if it was given, else that of the
// model.
func contextOf(cfg *config.Config, m stages.Config) (int, error) {
	n := cfg.Model.Context
	switch {
	case !cfg.IsSet("model.context") || n == m.Context:
		return m.Context, nil
	case n > m.Positions():
		return 0, cfg.Errorf("model.context",
			"%d is more than the %d positions of the model in model.from; use at most that, or start from another checkpoint", n, m.Positions())
	}
	return n, nil
}

// unusedRopeTheta is the value in a configuration whose family has no rotary positions: a valid value of the key.
const unusedRopeTheta = 10000
