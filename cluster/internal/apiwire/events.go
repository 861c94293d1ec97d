package apiwire

import (
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry"
)

// Limits of what is sent.
const (
	// LimitErrorBytes bounds each text of an error, and limitErrorTexts the number of texts.
	LimitErrorBytes = 8 << 10
	limitErrorTexts = 64
	// LimitTraceActions bounds the actions of a trace and their parts, and LimitTraceRanks its ranks.
	LimitTraceActions = 1 << 19
	LimitTraceRanks   = 1 << 16
)

// PackInfo encodes the description of a run.
func PackInfo(i troupe.Info) *wire.RunInfo {
	w := &wire.RunInfo{Name: i.Name, Out: i.Out, Family: i.Family, Parameters: i.Parameters, Vocab: int64(i.Vocab), TrainTokens: i.TrainTokens,
		ValTokens:   i.ValTokens,
		EvalWindows: int64(i.EvalWindows), EvalSets: words.Cut(i.EvalSets, LimitErrorBytes),
		Sources: words.Cut(i.Sources, LimitErrorBytes), EpochWindows: i.EpochWindows, EpochSteps: i.EpochSteps, Epochs: i.Epochs,
		Steps:     int64(i.Steps),
		ResumedAt: int64(i.ResumedAt),
		Schedule:  i.Schedule, Stages: Small(i.Stages), Chunks: Small(i.Chunks), Microbatches: Small(i.Microbatches), Layout: i.Layout,
		BubblePct: i.BubblePct,
		Device:    i.Device, Threads: Small(i.Threads), Kernels: i.Kernels, Samples: i.Samples, Frozen: i.Frozen, Ranks: Small(i.Ranks),
		Grid: i.Grid, Text: words.Cut(i.Text, LimitErrorBytes), Changed: words.Cut(i.Changed, LimitErrorBytes),
		Documents: packDocuments(i.Documents), Packing: packPacking(i.Packing)}
	for _, n := range i.PeakInFlight {
		w.PeakInFlight = append(w.PeakInFlight, Small(n))
	}
	return w
}

// UnpackInfo decodes the description of a run.
func UnpackInfo(w *wire.RunInfo) troupe.Info {
	i := troupe.Info{Name: w.GetName(), Out: w.GetOut(), Family: w.GetFamily(), Parameters: w.GetParameters(), Vocab: int(w.GetVocab()),
		TrainTokens: w.GetTrainTokens(), ValTokens: w.GetValTokens(),
		EvalWindows: int(w.GetEvalWindows()), EvalSets: w.GetEvalSets(), Sources: w.GetSources(), EpochWindows: w.GetEpochWindows(),
		EpochSteps: w.GetEpochSteps(), Epochs: w.GetEpochs(),
		Steps: int(w.GetSteps()), ResumedAt: int(w.GetResumedAt()),
		Schedule: w.GetSchedule(), Stages: int(w.GetStages()), Chunks: int(w.GetChunks()), Microbatches: int(w.GetMicrobatches()),
		Layout: w.GetLayout(), BubblePct: w.GetBubblePct(),
		Device: w.GetDevice(), Threads: int(w.GetThreads()), Kernels: w.GetKernels(), Samples: w.GetSamples(), Frozen: w.GetFrozen(),
		Ranks: int(w.GetRanks()), Grid: w.GetGrid(), Text: w.GetText(), Changed: w.GetChanged(),
		Documents: unpackDocuments(w.GetDocuments()), Packing: unpackPacking(w.GetPacking())}
	for _, n := range w.GetPeakInFlight() {
		i.PeakInFlight = append(i.PeakInFlight, int(n))
	}
	return i
}

// Small converts a count that the config bounds far below 2^31.
func Small(n int) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }

// PackEvent encodes a run's event; nil: events of this kind are not sent.
func PackEvent(e troupe.Event) *wire.RunEvent {
	switch e := e.(type) {
	case troupe.StepEvent:
		return &wire.RunEvent{Kind: &wire.RunEvent_Step{Step: PackStep(e)}}
	case troupe.CheckpointEvent:
		return &wire.RunEvent{Kind: &wire.RunEvent_Checkpoint{Checkpoint: &wire.CheckpointEvent{Step: e.Step, Dir: e.Dir, Best: e.Best,
			TookNs: int64(e.Took), Weights: e.Weights}}}
	case troupe.WarningEvent:
		return Warning(e.Text)
	case troupe.RestartEvent:
		return &wire.RunEvent{Kind: &wire.RunEvent_Restart{Restart: &wire.RestartEvent{Error: words.Cut(e.Err.Error(), LimitErrorBytes),
			Restart: Small(e.Restart), Most: Small(e.Most), Why: words.Cut(e.Why, LimitErrorBytes)}}}
	case troupe.ReplaceEvent:
		w := &wire.ReplaceEvent{Step: e.Step, Error: words.Cut(e.Err.Error(), LimitErrorBytes), HaltedNs: int64(e.Halted),
			FoundNs: int64(e.Found), LoadedNs: int64(e.Loaded), Source: e.Source, Bytes: e.Bytes, KeptBytes: e.KeptBytes}
		for _, rank := range e.Ranks {
			w.Ranks = append(w.Ranks, Small(rank))
		}
		return &wire.RunEvent{Kind: &wire.RunEvent_Replace{Replace: w}}
	case troupe.RegroupEvent:
		return &wire.RunEvent{Kind: &wire.RunEvent_Regroup{Regroup: &wire.RegroupEvent{Step: e.Step, Leaving: e.Leaving, Free: e.Free,
			Lost: e.Lost}}}
	case troupe.StallEvent:
		return &wire.RunEvent{Kind: &wire.RunEvent_Stall{Stall: &wire.StallEvent{QuietNs: int64(e.Quiet), Status: PackStatus(e.Status)}}}
	case troupe.ChangeEvent:
		w := packChange(e.Change)
		if e.Err != nil {
			w.Error = words.Cut(e.Err.Error(), LimitErrorBytes)
		}
		return &wire.RunEvent{Kind: &wire.RunEvent_Change{Change: w}}
	case troupe.PauseEvent:
		return &wire.RunEvent{Kind: &wire.RunEvent_Pause{Pause: &wire.PauseEvent{Step: e.Step, Paused: e.Paused}}}
	}
	return nil
}

// Warning encodes a warning.
func Warning(text string) *wire.RunEvent {
	return &wire.RunEvent{Kind: &wire.RunEvent_Warning{Warning: &wire.WarningEvent{Text: words.Cut(text, LimitErrorBytes)}}}
}

// PackStep encodes a step's event, without its trace.
func PackStep(e troupe.StepEvent) *wire.StepEvent {
	w := &wire.StepEvent{Step: int64(e.Step), Tokens: e.Tokens, Skipped: e.Skipped, Update: e.Update, IdealBubblePct: e.IdealBubblePct,
		Metrics: e.Metrics, ValMetrics: e.ValMetrics, ValLosses: e.ValLosses, Epoch: e.Epoch, TimeMs: e.TimeMS}
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		v, field := f.Get(&e.Record), fieldOf(w, f)
		switch {
		case v == nil:
		case field == nil && w.Figures == nil:
			w.Figures = map[string]float64{f.Name: *v}
		case field == nil:
			w.Figures[f.Name] = *v
		case f.Whole():
			w.ProtoReflect().Set(field, protoreflect.ValueOfInt64(int64(*v)))
		default:
			w.ProtoReflect().Set(field, protoreflect.ValueOfFloat64(*v))
		}
	}
	return w
}

// unpackStep decodes a step's event, without its trace.
func unpackStep(w *wire.StepEvent) troupe.StepEvent {
	e := troupe.StepEvent{Record: telemetry.Record{Step: int(w.GetStep()), Tokens: w.GetTokens(), Skipped: w.GetSkipped(),
		Update: w.GetUpdate(), Metrics: w.GetMetrics(), ValMetrics: w.GetValMetrics(), ValLosses: w.GetValLosses(), Epoch: w.GetEpoch(),
		TimeMS: w.GetTimeMs()},
		IdealBubblePct: w.GetIdealBubblePct()}
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		v, ok := w.GetFigures()[f.Name]
		if field := fieldOf(w, f); field != nil {
			ok = w.ProtoReflect().Has(field)
			if of := w.ProtoReflect().Get(field); f.Whole() {
				v = float64(of.Int())
			} else {
				v = of.Float()
			}
		}
		if ok {
			f.Set(&e.Record, &v)
		}
	}
	return e
}

// fieldOf returns the message's field for a metric; nil: it has none.
func fieldOf(w *wire.StepEvent, f *telemetry.Figure) protoreflect.FieldDescriptor {
	return w.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(f.Name))
}

// UnpackEvent decodes an event; nil: it is of an unknown kind.
func UnpackEvent(w *wire.RunEvent) (troupe.Event, error) {
	switch k := w.GetKind().(type) {
	case *wire.RunEvent_Step:
		e := unpackStep(k.Step)
		err := unpackTrace(&e, k.Step.GetTrace())
		return e, err
	case *wire.RunEvent_Checkpoint:
		c := k.Checkpoint
		return troupe.CheckpointEvent{Step: c.GetStep(), Dir: c.GetDir(), Best: c.GetBest(), Weights: c.GetWeights(),
			Took: time.Duration(c.GetTookNs())}, nil
	case *wire.RunEvent_Warning:
		return troupe.WarningEvent{Text: k.Warning.GetText()}, nil
	case *wire.RunEvent_Restart:
		return troupe.RestartEvent{Err: errors.New(k.Restart.GetError()), Restart: int(k.Restart.GetRestart()),
			Most: int(k.Restart.GetMost()), Why: k.Restart.GetWhy()}, nil
	case *wire.RunEvent_Replace:
		w := k.Replace
		e := troupe.ReplaceEvent{Step: w.GetStep(), Err: errors.New(w.GetError()), Halted: time.Duration(w.GetHaltedNs()),
			Found: time.Duration(w.GetFoundNs()), Loaded: time.Duration(w.GetLoadedNs()), Source: w.GetSource(), Bytes: w.GetBytes(),
			KeptBytes: w.GetKeptBytes()}
		for _, rank := range w.GetRanks() {
			e.Ranks = append(e.Ranks, int(rank))
		}
		return e, nil
	case *wire.RunEvent_Regroup:
		return troupe.RegroupEvent{Step: k.Regroup.GetStep(), Leaving: k.Regroup.GetLeaving(), Free: k.Regroup.GetFree(),
			Lost: k.Regroup.GetLost()}, nil
	case *wire.RunEvent_Stall:
		status, err := UnpackStatus(k.Stall.GetStatus())
		return troupe.StallEvent{Quiet: time.Duration(k.Stall.GetQuietNs()), Status: status}, err
	case *wire.RunEvent_Change:
		c := k.Change
		e := troupe.ChangeEvent{Change: unpackChange(c)}
		if c.GetError() != "" {
			e.Err = errors.New(c.GetError())
		}
		return e, nil
	case *wire.RunEvent_Pause:
		return troupe.PauseEvent{Step: k.Pause.GetStep(), Paused: k.Pause.GetPaused()}, nil
	}
	return nil, nil
}

// PackEnd encodes how a run ended.
func PackEnd(r troupe.Result, err error) *wire.EndEvent {
	return &wire.EndEvent{Error: PackError(err), Step: int64(r.Step), Stopped: r.Stopped, FirstValLoss: r.FirstValLoss,
		LastValLoss: r.LastValLoss, BestValLoss: r.BestValLoss, BestStep: int64(r.BestStep),
		Dir: r.Dir, Kept: r.Updates.Kept, RolledBack: r.Updates.RolledBack, Waited: r.Updates.Waited, Early: r.Early}
}

// UnpackEnd decodes how a run ended.
func UnpackEnd(w *wire.EndEvent) (troupe.Result, error) {
	return troupe.Result{Step: int(w.GetStep()), Stopped: w.GetStopped(), FirstValLoss: w.GetFirstValLoss(), LastValLoss: w.GetLastValLoss(),
			BestValLoss: w.GetBestValLoss(), BestStep: int(w.GetBestStep()), Dir: w.GetDir(),
			Updates: troupe.Updates{Kept: w.GetKept(), RolledBack: w.GetRolledBack(), Waited: w.GetWaited()}, Early: w.GetEarly()},
		UnpackError(w.GetError())
}
