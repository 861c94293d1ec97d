package attempt

import (
	"fmt"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/runlog"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// describe fills in the actors.Spec. It changes the folder, after all checks have passed.
func (a *Attempt) describe() error {
	if err := a.openFeed(); err != nil {
		return err
	}
	evalMicrobatches := a.feed.EvalMicrobatches(a.cfg.Batch.Microbatch)
	model := a.plan.Model().Config
	save, err := rundir.NewSaver(a.output.Store, a.cfg.Run.Keep, a.cfg.TOML(), model, a.data.Maker(a.cfg, model.Vocab), a.kept)
	if err != nil {
		return err
	}
	if model.Adapter != nil {
		if err := save.OfAdapter(model.Adapter, a.baseIs); err != nil {
			return err
		}
	}
	if err := save.BestIn(a.cfg.Device.DType, model, a.kept); err != nil {
		return err
	}
	save.BestStep = a.start.BestStep
	if err := a.placeStages(evalMicrobatches); err != nil {
		return err
	}
	begun, err := a.beginFolder()
	if err != nil {
		return err
	}
	a.Step, a.Model, a.LastValLoss = a.start.Step, a.plan.Model(), begun.LastValLoss
	a.Info = a.info()
	a.memory = a.rankMemory()
	a.env.Begun(a)
	a.tellRate()
	a.warnDisk()
	a.setTraining()
	a.setWriters(save, begun)
	return nil
}

// openFeed opens the feed of the loader.
func (a *Attempt) openFeed() (err error) {
	if a.feed, err = corpus.FeedOf(a.data, a.cfg, a.start.Step); err != nil {
		return err
	}
	windows, set := a.feed.DecidingWindows()
	switch was := a.start; {
	case !a.resumes():
	case was.EvalSet != set:
		a.restartBest(fmt.Sprintf("the loss of %s now decides which checkpoint is the best, not that of %s", setOrMain(set),
			setOrMain(was.EvalSet)))
	case was.EvalWindows != windows:
		a.restartBest(fmt.Sprintf("a validation now has %d windows, not %d", windows, was.EvalWindows))
	}
	a.start.EvalWindows, a.start.EvalSet = windows, set
	return nil
}

// setOrMain names a validation set; "" is that of data.val or data.val_fraction.
func setOrMain(name string) string {
	if name == "" {
		return "the validation text"
	}
	return "[[eval]] " + name
}

// placeStages sets the stages and where they are.
func (a *Attempt) placeStages(evalMicrobatches int) (err error) {
	if _, err := a.plan.CheckWorld(evalMicrobatches); err != nil {
		return err
	}
	if a.spec, err = a.plan.Stages(evalMicrobatches, a.load, a.resumes(), a.devices.groups(a.plan)); err != nil {
		return err
	}
	a.assignment = plan.Assignment{Run: a.start.Run, Config: a.cfg, Plan: a.plan, EvalMicrobatches: evalMicrobatches,
		Stored: a.ckpt != nil, WithState: a.resumes(), Step: a.start.Step}
	if a.cfg.Cluster.SharedFolder == "auto" {
		a.assignment.Folder = a.output.FS
	}
	err = a.devices.place(a.env.Context, &a.spec, a.assignment)
	if a.plan.Model().Fused() { // only a process with all parts of a tensor can write it
		a.spec.Shares = nil
	}
	return err
}

// beginFolder starts the run in its folder and opens its files.
func (a *Attempt) beginFolder() (rundir.Beginning, error) {
	text := a.cfg.TOML()
	if a.resumes() && a.output.Config != nil && a.start.Step >= int64(a.cfg.Run.Steps) {
		text = a.output.Config // nothing is left to do: the folder keeps the configuration of its steps
	}
	begun, err := a.output.Begin(text, a.start, a.resumes())
	for _, w := range begun.Warnings {
		a.env.Warn("%s", w)
	}
	if a.metrics, a.stats = begun.Metrics, begun.Stats; err != nil {
		return begun, err
	}
	if a.baseIs.SHA256 != "" {
		if err := a.output.NoteBase(a.plan.Model().Config.Adapter, a.baseIs); err != nil {
			return begun, err
		}
	}
	if err := a.journalRate(); err != nil {
		return begun, err
	}
	a.env.Unmarked(a.env.Marks.Begin(begun.Marks, a.start.Step, a.resumes(), a.moved()))
	for _, w := range a.tokens.Write() {
		a.env.Warn("%s", w)
	}
	if a.resumes() {
		a.env.Saved(a.start, a.output.Store.Path(int(a.start.Step)))
	}
	return begun, nil
}

// info describes the run to people.
func (a *Attempt) info() event.Info {
	p, cfg, m := a.plan, a.cfg, a.plan.Model()
	sequences, epoch, epochs := float64(cfg.Batch.Sequences), float64(a.feed.Epoch), 0.0
	if epoch > 0 { // else it is not known
		epochs = float64(cfg.Run.Steps) * sequences / epoch
	}
	info := event.Info{
		Name: cfg.Run.Name, Out: cfg.Run.Out, ID: a.start.Run.String(), Steps: cfg.Run.Steps, ResumedAt: int(a.start.Step),
		Family: m.Config.Family, Parameters: m.Parameters(), Frozen: m.Parameters() - m.Trained(), Vocab: m.Config.Vocab,
		TrainTokens: a.data.TrainLen(), ValTokens: a.data.ValLen(), EvalWindows: a.feed.Windows,
		EvalSets:     a.feed.DescribeSets(a.cfg.HasMainSet()),
		Sources:      a.data.DescribeSources(a.start.Step*int64(cfg.Batch.Sequences), int64(cfg.Run.Steps)*int64(cfg.Batch.Sequences)),
		EpochWindows: a.feed.Epoch, EpochSteps: epoch / sequences, Epochs: epochs,
		Documents: a.data.Documents, Packing: a.data.Packing, Samples: !cfg.Text(), Classes: strings.Join(a.data.Classes, "; "),
		Schedule: p.Table().Schedule, Stages: p.Table().NumRanks(), Chunks: p.Table().NumChunks, Microbatches: p.Table().Microbatches,
		Layout: p.Layout().String(), BubblePct: 100 * p.BubbleFraction(), PeakInFlight: p.Report().PeakInFlight,
	}
	if info.Ranks = p.Grid().World(); info.Ranks > info.Stages {
		info.Grid = p.Grid().Describe()
		if zero := p.DescribeZero(); zero != "" {
			info.Grid += "; " + zero
		}
	}
	if a.resumes() {
		info.Changed = a.moved()
	}
	if a.readsText() {
		info.Text = a.Text.Describe()
	}
	a.devices.describe(&info)
	return info
}

// setTraining fills in the data, the length, and the settings of the training.
func (a *Attempt) setTraining() {
	s, run := &a.spec, a.cfg.Run
	if ckpt := a.ckpt; ckpt != nil {
		if a.o.Hosts != nil {
			s.Weights = &actors.StoredWeights{Params: a.Model.Params, Source: a.load}
		}
		// After the weights are read, a removal of the checkpoint frees its space. Frozen weights are read again for a lost rank: they stay
		// open, so that they are the same ones.
		base, adapter, again := a.base, a.adapter, a.o.Hosts != nil && a.plan.Freezes() && a.plan.CheckRenewal() == nil
		s.Ready = func([]int64) event.Event {
			if again {
				return nil
			}
			_ = ckpt.Close()
			if base != nil {
				_ = base.Close()
			}
			if adapter != nil {
				_ = adapter.Close()
			}
			return nil
		}
	}
	s.Run, s.Start, s.Steps = a.start.Run, a.start, int64(run.Steps)
	s.Patience, s.MaxSkipped = int64(run.Patience), int64(run.MaxSkippedSteps)
	s.EvalEvery, s.CheckpointEvery, s.TraceEvery = int64(run.EvalEvery), int64(run.CheckpointEvery), runlog.TraceEvery(a.cfg, a.o.Trace)
	s.EvalSets = a.feed.Sets
	s.Data, s.MicrobatchSize, s.Context, s.Sequences = a.feed.Source, a.cfg.Batch.Microbatch, a.feed.Context, a.cfg.Batch.Sequences
	s.EpochWindows = a.feed.Epoch
	s.Rate, s.ClipNorm = rateOf(a.cfg), a.cfg.Optimizer.ClipNorm
	s.StallAfter = time.Duration(run.StallAfterS * float64(time.Second))
	s.PeakTokensPerS = a.peakTokens()
	s.SaveInPlace, s.LastInPlace = a.inPlace, a.o.Hosts == nil && a.plan.AllOnHost()
	s.Requests = a.env.Requests(a.start.Step)
	if s.Logger = a.o.Logger; s.System == nil {
		s.System = a.o.System
	}
}

// setWriters fills in the writers of files and the receiver of events.
func (a *Attempt) setWriters(save *rundir.Saver, begun rundir.Beginning) {
	s := &a.spec
	layers, stats := runlog.NewLayerStats(a.plan, a.memory), begun.Stats
	s.StatsEvery, s.WriteStats = int64(a.cfg.Run.StatsEvery), func(n actors.Norms) error { return stats.Write(layers.Line(n)) }
	a.writeTexts(begun)
	s.Changes, s.WriteChange = a.output.Changes(), a.output.WriteChange
	s.MayPass = checkpoint.MayPass
	save.SyncMetrics, save.Saved = a.metrics.Sync, a.env.Saved
	s.WriteShared, s.WriteCheckpoint = save.WriteShared, save.Write
	switch a.cfg.Run.Best {
	case config.BestWeights:
		s.WriteBest = save.WriteBest
	case config.BestNone:
		s.NoBest = true
	}
	s.WriteRecord, s.WriteTrace, s.OnEvent = a.metrics.Write, runlog.TraceWriter(a.plan, a.output.FS, a.Info.Threads), a.env.Event
}

// writeTexts starts the sampler if run.sample_tokens is set.
func (a *Attempt) writeTexts(begun rundir.Beginning) {
	var why string
	a.sampler, why = runlog.NewSampler(runlog.SamplerOptions{Config: a.cfg, Model: a.Model, Tokenizer: a.Tokenizer, Text: a.Text,
		Apart:  a.o.Hosts != nil,
		Writer: begun.Samples, Warn: a.env.Warn, Written: func(s telemetry.Sample) {
			a.env.Event(event.TextEvent{Step: int64(s.Step), Prompt: s.Prompt, Text: s.Text})
		}})
	if why != "" {
		a.env.Warn("run.sample_tokens is %d, but no sample text is written: %s", a.cfg.Run.SampleTokens, why)
	}
	if a.sampler != nil && a.o.Hosts == nil {
		a.spec.CopyAtEval = a.sampler.CopyAtEval
	}
}
