package propose

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
)

// base is the model to tune.
type base struct {
	path       string
	family     string
	parameters int64
	positions  int
	packs      bool   // documents may share a sequence
	bf16       bool   // the weights are in bfloat16
	template   string // a built-in chat template that fits its tokenizer; "": it has its own
}

// baseOf reads the shape of a model; nil: there is none.
func baseOf(path string) (b *base, err error) {
	if path == "" {
		return nil, nil
	}
	c, err := ggufmodel.OpenAt(path)
	if err != nil {
		err = folder.Missing(err, "--from", "folder", path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; it is the folder of a run or of a published model: hf download NAME --local-dir DIR fetches one", err)
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := plan.ReadModel(c)
	if err != nil {
		return nil, fmt.Errorf("--from: %s: %w", c.Dir(), err)
	}
	if !m.Language() {
		return nil, fmt.Errorf("%w: --from: %s is a model of family %q; a language model can be tuned", ErrData, c.Dir(), m.Family)
	}
	b = &base{path: path, family: m.Family, parameters: m.Parameters(), positions: m.Context}
	if model, err := stages.NewModel(m); err == nil {
		b.packs = model.CheckPacking() == nil
	}
	tok, _ := rundir.ReadTokenizer(c) // the run reports the error
	if talk, err := rundir.ReadTalk(c, tok); err == nil && talk.Template == "" {
		b.template = rundir.FittingTemplate(tok)
	}
	if text, err := c.File(rundir.ModelFile); err == nil {
		var types struct {
			TorchDType string `json:"torch_dtype"`
			DType      string `json:"dtype"`
		}
		_ = json.Unmarshal(text, &types) // ReadModel has read the file
		b.bf16 = types.TorchDType == "bfloat16" || types.DType == "bfloat16"
	}
	return b, nil
}

// tune sets the keys for tuning the model on data.
func (b *base) tune(p *Proposal, l length, o Options) {
	l.context = min(l.context, b.positions)
	sequences := tuneSequences
	if b.packs {
		p.pack(&l, sequences)
	}
	steps := l.stepsFor(3, sequences, 20, 1000)
	p.setSteps(steps, l, sequences)
	p.set("run.checkpoint_every", 0, "No checkpoints but the last one and the best one: each has the whole model")
	p.set("run.keep", 1, "Keep the newest N checkpoints, and the best one")
	p.set("model.from", b.path, fmt.Sprintf("%s with %s parameters", b.family, words.Count(b.parameters)))
	p.set("model.context", l.context, fmt.Sprintf("Tokens in a sequence; the model has %s positions", words.Count(int64(b.positions))))
	p.set("batch.sequences", sequences, "Sequences in a step")
	lr := 5e-5
	if b.parameters > 1e9 {
		lr = 2e-5
	}
	p.set("optimizer.lr", lr, "Peak learning rate; a published model needs a low one")
	p.set("optimizer.warmup_steps", warmupSteps(steps), "Steps in which the learning rate rises to its peak")
	p.set("optimizer.weight_decay", 0.0, "Weight decay, of all weights except norms and biases")
	if b.bf16 && (o.FastBF16 || b.parameters > 5e8) {
		p.set("device.dtype", "bfloat16", `"bfloat16" (mixed precision), or "float32"`)
	}
	p.note("model.freeze = [\"embed\", \"0-N\"] trains only the layers after block N, which takes less memory")
}
