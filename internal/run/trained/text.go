package trained

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
)

// Text returns the encoder of the model's texts. It follows the model's directory and its run.
func (t *Model) Text() (*corpus.Text, error) {
	if t.text != nil {
		return t.text, nil
	}
	talk, err := rundir.ReadTalk(t.Checkpoint, t.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Checkpoint.Dir(), err)
	}
	cfg, err := corpus.StoredConfig(t.Checkpoint)
	if err != nil {
		return nil, err
	}
	special := ""
	if cfg != nil {
		special = cfg.Data.SpecialTokens
	}
	t.text = corpus.NewText(t.Tokenizer, t.template.Talk(talk), special)
	return t.text, nil
}

// WarnOnce calls warn with the warnings about the model's files, at the first call.
func (t *Model) WarnOnce(warn func(string)) {
	if warn == nil || t.warned {
		return
	}
	t.warned = true
	for _, text := range t.text.Warnings() {
		warn(text)
	}
}

// Lengthen sets the context of the model, up to its number of positions, and returns
// it. 0 keeps the context.
func (t *Model) Lengthen(context int) (int, error) {
	c := t.Shape.Config
	switch {
	case context == 0:
		return c.Context, nil
	case context < 1 || context > c.Positions():
		return 0, fmt.Errorf("%w: windows of %d tokens, but the model of %s has %d positions", plan.ErrOptions, context, t.From(), c.Positions())
	case context <= c.Context:
		return context, nil
	}
	c.Context, c.MaxPositions = context, c.Positions()
	m, err := stages.NewModel(c)
	if err == nil {
		t.Shape = m
	}
	return context, err
}
