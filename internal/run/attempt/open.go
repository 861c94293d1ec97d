package attempt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// open opens everything, and describes the run to the actors.
func (a *Attempt) open(ctx context.Context) (err error) {
	if err := a.cfg.Validate(); err != nil {
		return err
	}
	a.cfg, a.devices, err = openDevices(ctx, a.cfg, a.o, a.noGPU)
	if a.byAuto = a.cfg.AutoGPU(); err != nil {
		return err
	}
	if err := a.openFolder(); err != nil {
		return err
	}
	if err := a.openData(); err != nil {
		return err
	}
	if err := a.begins(); err != nil {
		return err
	}
	if err := a.makePlan(); err != nil {
		return err
	}
	if err := a.describe(); err != nil {
		return err
	}
	return errors.Join(a.readReference(ctx), a.readTeacher(ctx))
}

// openFolder opens the run's folder and the checkpoint that the run begins or resumes from.
func (a *Attempt) openFolder() (err error) {
	if a.output, err = rundir.Open(a.cfg, a.o.Fresh); err != nil {
		return err
	}
	if a.back, err = a.output.Resume(a.o.FromStep); err != nil {
		return err
	}
	if a.back != nil {
		a.ckpt = a.back.Checkpoint
	}
	if err := a.loadShape(); err != nil {
		return err
	}
	a.warnDevices()
	for _, w := range a.output.Warnings {
		a.env.Warn("%s", w)
	}
	return nil
}

// resumes reports whether the run resumes.
func (a *Attempt) resumes() bool { return a.back != nil }

// loadShape takes the shape from the checkpoint that the run resumes from, or from model.from.
func (a *Attempt) loadShape() (err error) {
	if !a.resumes() {
		if a.cfg, a.ckpt, err = plan.LoadFrom(a.cfg); err != nil {
			return err
		}
	} else if a.cfg.Model.From != "" {
		if a.cfg, err = plan.LoadShape(a.cfg, a.ckpt); err != nil {
			return err
		}
	}
	if a.output.Config != nil {
		name := filepath.Join(a.cfg.Run.Out, rundir.ConfigFile)
		if err := a.adopt(name, a.output.Config); err != nil {
			return err
		}
		if err := rundir.Conflicts(a.cfg, name, a.output.Config); err != nil {
			return err
		}
	}
	if a.resumes() {
		if err := a.compare(); err != nil {
			return err
		}
	}
	return a.openBase()
}

// openBase opens the base of an adapter: the checkpoint that a new run starts from or, for a run that resumes, the one that its
// checkpoint names by its hash.
func (a *Attempt) openBase() (err error) {
	from := a.cfg.Model.From
	switch {
	case !a.resumes() && a.ckpt != nil:
		if err = plan.WholeBase(a.ckpt); err == nil && a.cfg.Adapter.Rank > 0 {
			a.baseIs.From = from
			if a.baseIs.SHA256, err = plan.BaseHash(a.ckpt); err == nil {
				err = a.output.CheckBase(from, a.baseIs.SHA256)
			}
		}
	case a.resumes() && a.ckpt.Part():
		var is *rundir.Adapted
		if a.base, is, err = plan.OpenBase(a.ckpt, from); err == nil {
			a.baseIs = rundir.Base{From: from, SHA256: is.Base.SHA256}
		}
	}
	if err != nil {
		return a.cfg.Errorf("model.from", "%w", err)
	}
	return nil
}

// openAdapter opens the directory of PEFT that a new run continues.
func (a *Attempt) openAdapter(m *stages.Model) (err error) {
	if a.adapter, err = peft.Read(a.cfg.Adapter.From); err != nil {
		return err
	}
	a.load, err = a.adapter.Weights(m, plan.Weights(a.ckpt))
	return err
}

// adopt takes the stored configuration of the run's last start, and keeps some of its values.
func (a *Attempt) adopt(name string, text []byte) (err error) {
	var kept []string
	if a.cfg, a.was, kept, err = rundir.Adopt(a.cfg, name, text); err != nil {
		return err
	}
	for _, text := range kept {
		a.env.Warn("%s", text)
	}
	return nil
}

// compare compares the configuration with that of the checkpoint that the run resumes from.
func (a *Attempt) compare() error {
	text, err := a.ckpt.File(rundir.ConfigFile)
	if err != nil {
		return err
	}
	name := filepath.Join(a.ckpt.Dir(), rundir.ConfigFile)
	if a.was == nil { // the folder has lost its own
		if err := a.adopt(name, text); err != nil {
			return err
		}
	}
	if err := rundir.Conflicts(a.cfg, name, text); err != nil {
		return err
	}
	stored, err := config.ParseStored(name, text)
	if err != nil {
		return err
	}
	if how := config.Regrouped(stored, a.cfg); how != "" {
		a.env.Warn("the run %s: losses may differ in the last digits, in float32 by a relative 1e-5", how)
	}
	if was, is := stored.Optimizer.StateDType, a.cfg.Optimizer.StateDType; was != is {
		a.env.Warn("optimizer.state_dtype was %q and is now %q: the optimizer's state is converted, and later losses differ from those of "+
			"a run without the change", was, is)
	}
	if a.output.ByName() { // the journal loses later changes
		a.was = stored
	}
	a.rate = rescheduled(a.was, a.cfg, a.output.Changes(), a.back.State.Step)
	return nil
}

// warnDevices warns about settings that the devices do not support.
func (a *Attempt) warnDevices() {
	set := a.devices.set
	if set == nil {
		return
	}
	set.OnWarning(func(text string) { a.env.Warn("%s", text) })
	if apart := set.Apart(); len(apart) > 0 {
		a.env.Warn("%s have no access to each other's memory: transfers between them go through host memory", strings.Join(apart, ", "))
	}
	for _, d := range set.Opened() {
		if a.cfg.Device.DType == "bfloat16" && !d.FastBF16() {
			a.env.Warn("device.dtype is bfloat16, but %s kernels have no bfloat16 instructions (AVX-512 BF16, AMX, or a GPU from Ampere on): "+
				"numbers take half the memory, but products are as slow as in float32", d.Path())
		}
		if a.cfg.Device.TF32 && !device.KnowsTF32(d) {
			a.env.Warn("device.tf32 is true, but cuBLASLt was not found (engine doctor lists where it was searched): products use full float32")
		}
	}
}

// openData reads the data and warns about them.
func (a *Attempt) openData() error {
	var accept corpus.Accept
	if a.resumes() {
		a.changed = corpus.Comparison{Was: a.back.State.Data, Out: a.cfg.Run.Out, Accept: a.o.AcceptNewData,
			EvalSet: a.back.State.EvalSet}
		accept = a.changed.Check
	}
	a.tokens = corpus.NewTokenStore(a.output.FS)
	if err := a.loadData(accept, a.tokens); err != nil {
		return err
	}
	for _, w := range append(a.tokens.Warnings, a.dataWarnings()...) {
		a.env.Warn("%s", w)
	}
	return corpus.CheckVocab(a.cfg, a.Tokenizer)
}

// loadData reads the data and what the model's files say about them. accept and tokens are nil without a folder of a run.
func (a *Attempt) loadData(accept corpus.Accept, tokens *corpus.TokenStore) error {
	stored, err := a.storedTokenizer()
	if err != nil {
		return err
	}
	if a.kept, err = a.keep(); err != nil {
		return err
	}
	talk, err := a.readTalk(stored)
	if err != nil {
		return err
	}
	if a.data, err = corpus.Load(a.cfg, stored, talk, accept, tokens); err != nil {
		return err
	}
	a.Tokenizer, a.Text = a.data.Tokenizer, corpus.NewText(a.data.Tokenizer, talk, a.cfg.Data.SpecialTokens)
	return nil
}

// dataWarnings are warnings about the data.
func (a *Attempt) dataWarnings() (all []string) {
	if a.readsText() {
		all = a.Text.Warnings()
	}
	all = append(all, a.data.Warnings...)
	if n := len(a.data.Excluded); n > 0 {
		all = append(all, fmt.Sprintf("%s also matches %d of the files of data.train; they are only used for validation: %s",
			corpus.HeldBy(a.cfg), n, corpus.Listed(a.data.Excluded)))
	}
	return all
}

// readTalk reads what the model's files say about texts. A chat template that the configuration chooses replaces that of the
// files; a checkpoint has it already.
func (a *Attempt) readTalk(stored tokenizer.Tokenizer) (talk rundir.Talk, err error) {
	var chosen rundir.Template
	if !a.resumes() {
		if chosen, err = rundir.ChosenTemplate("data.chat_template", a.cfg.Data.ChatTemplate); err != nil {
			return talk, a.cfg.Errorf("data.chat_template", "%w", err)
		}
		a.kept = chosen.Keep(a.kept)
	}
	if talk, err = rundir.ReadTalk(a.kept, stored); err != nil {
		return talk, a.cfg.Errorf("model.from", "%w", err)
	}
	return chosen.Talk(talk), nil
}

// readsText reports whether the data are text, and not ids or samples.
func (a *Attempt) readsText() bool { return a.cfg.Text() && a.cfg.IDBytes() == 0 }

// storedTokenizer returns the tokenizer of the checkpoint that the run resumes from, or that of
// data.tokenizer, or that of model.from. An unknown one matters only for text:
// see plan.LoadShape.
func (a *Attempt) storedTokenizer() (tokenizer.Tokenizer, error) {
	if a.resumes() {
		return a.back.Tokenizer, nil
	}
	if path := a.cfg.TokenizerPath(); a.cfg.Text() && path != "" && a.cfg.IsSet("data.tokenizer") {
		t, err := rundir.OpenTokenizer(path)
		if err != nil {
			return nil, a.cfg.Errorf("data.tokenizer", "%w", err)
		}
		return t, nil
	}
	if a.ckpt == nil {
		return nil, nil
	}
	t, err := rundir.ReadTokenizer(a.ckpt)
	if checkpoint.TryAgain(err) {
		return nil, fmt.Errorf("%s: %w", a.ckpt.Dir(), err)
	}
	return t, nil
}

// keep reads the files that the run keeps: those of the checkpoint that it starts or resumes from. For another
// tokenizer, it reads the files beside that.
func (a *Attempt) keep() (rundir.Kept, error) {
	kept, err := rundir.Keep(a.ckpt)
	if err != nil {
		return kept, err
	}
	if path := a.cfg.TokenizerPath(); path != "" && a.cfg.IsSet("data.tokenizer") && !a.resumes() {
		texts, err := rundir.TextsAt(path)
		if err != nil {
			return kept, a.cfg.Errorf("data.tokenizer", "%w", err)
		}
		if texts != nil {
			kept.Texts = texts
		}
	}
	return kept, nil
}

// begins sets the state in which the run starts or resumes, and the source of its weights.
func (a *Attempt) begins() (err error) {
	a.load = stages.InitWeights(a.cfg.Run.Seed)
	if a.ckpt != nil {
		a.load = plan.Weights(a.ckpt)
	}
	if !a.resumes() {
		a.start = trainstate.State{FormatVersion: trainstate.Version, Seed: a.cfg.Run.Seed, Optimizer: a.cfg.Optimizer.Name}
		a.start.Run, err = uuid.NewV7()
	} else {
		a.start = a.back.State
		if path := a.devices.path(); a.start.Kernels != path {
			a.env.Warn("the run was trained with %s kernels and continues with %s: losses may differ in the last bits", a.start.Kernels, path)
		}
		if d := a.output.Decision(a.start.Step); d != nil {
			a.start.Decisions = append(a.start.Decisions, *d)
		}
		if d := a.changed.Decision(a.start.Step); d != nil {
			a.env.Warn("the run continues with new data (%s)", d.Detail)
			a.start.Decisions = append(a.start.Decisions, *d)
		}
		if a.changed.Validation {
			a.restartBest("the validation text changed")
		}
	}
	a.start.Data, a.start.TrainTokens, a.start.Kernels = a.data.Identity, a.data.TrainLen(), a.devices.path()
	return err
}

// restartBest forgets the best validation loss, because it was measured on other data.
func (a *Attempt) restartBest(why string) {
	if s := &a.start; s.BestStep > 0 && s.BestValLoss != nil {
		a.env.Warn("%s: the best validation loss so far, %.4f at step %d, is not comparable and no longer counts", why, *s.BestValLoss,
			s.BestStep)
	}
	a.start.FirstValLoss, a.start.BestValLoss, a.start.BestStep = nil, nil, 0
}

// makePlan resolves the configuration with the data and the weights of the run. It rejects a model that does not
// fit the memory.
func (a *Attempt) makePlan() (err error) {
	if a.plan, err = a.resolve(); err != nil {
		return err
	}
	a.cfg = a.plan.Config()
	switch m := a.plan.Model(); {
	case m.Config.Adapter == nil:
	case a.base != nil:
		a.load = plan.AdaptedWeights(a.base, a.ckpt, m, a.cfg.Run.Seed, plan.HeldType(a.cfg))
	case a.cfg.Adapter.From != "":
		if err := a.openAdapter(m); err != nil {
			return a.cfg.Errorf("adapter.from", "%w", err)
		}
	default:
		a.load = plan.AdaptedWeights(a.ckpt, nil, m, a.cfg.Run.Seed, plan.HeldType(a.cfg))
	}
	for _, text := range a.plan.Warnings() {
		a.env.Warn("%s", text)
	}
	for _, text := range a.plan.Model().Thawed() {
		a.env.Warn("model.freeze: %s", text)
	}
	if o := a.plan.OutOfOrder(); o.Any() {
		a.env.Warn("schedule %s computes %v out of microbatch order: training is correct, but its losses differ in the last bits from those of other schedules", a.cfg.Pipeline.Schedule, o)
	}
	if n := a.cfg.Pipeline.Stages * a.cfg.Pipeline.Chunks; n > 1 && a.cfg.Pipeline.WireDType != "" {
		a.env.Warn("tensors between the %d chunks are rounded to %s (pipeline.wire_dtype): losses depend on the layout", n,
			a.cfg.Pipeline.WireDType)
	}
	inPlace, err := a.devices.checkMemory(a.plan)
	if err != nil {
		return err
	}
	if a.inPlace = inPlace != ""; a.inPlace {
		a.env.Warn("%s", inPlace)
	}
	return nil
}

func (a *Attempt) resolve() (*plan.Plan, error) {
	vocab := corpus.VocabOf(a.cfg, a.data.Tokenizer)
	fields := a.data.Fields
	if fields == nil && !a.cfg.Language() {
		var err error
		if fields, err = plan.FieldsOf(a.cfg, vocab); err != nil {
			return nil, err
		}
	}
	if a.ckpt == nil {
		return plan.New(a.cfg, vocab, stages.Config{Fields: fields})
	}
	m, err := plan.ReadModel(a.ckpt)
	if err != nil {
		return nil, err
	}
	if err := plan.SameFields(m.Fields, fields); err != nil {
		return nil, a.cfg.Errorf("data.train", "%w", err)
	}
	p, err := plan.New(a.cfg, vocab, m)
	if err != nil {
		return nil, err
	}
	var parts plan.StateParts
	if a.resumes() {
		parts = plan.Optimizer(a.cfg).Parts
	}
	if a.base != nil {
		return p, errors.Join(plan.CheckWeights(a.base, p.Model(), nil), plan.CheckAdapter(a.ckpt, p.Model(), parts))
	}
	return p, plan.CheckWeights(a.ckpt, p.Model(), parts)
}
