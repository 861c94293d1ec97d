package event

import (
	"encoding/json"
	"math"
	"time"
)

// MarshalJSON writes the keys of metrics.jsonl, and those of the other fields.
func (e StepEvent) MarshalJSON() ([]byte, error) {
	return object(e, e.Record, stepJSON{number(e.IdealBubblePct), traceOf(e.Trace), clocksOf(e.Clocks)})
}

// UnmarshalJSON reads what MarshalJSON wrote, and lines of metrics.jsonl.
func (e *StepEvent) UnmarshalJSON(data []byte) error {
	var to StepEvent
	var v stepJSON
	if err := read(*e, data, &to.Record, &v); err != nil {
		return err
	}
	to.IdealBubblePct, to.Trace, to.Clocks = float64(v.IdealBubblePct), v.Trace.times(), readClocks(v.Clocks)
	*e = to
	return nil
}

// stepJSON has the keys of a StepEvent that are not in its record.
type stepJSON struct {
	IdealBubblePct number      `json:"ideal_bubble_pct,omitzero"`
	Trace          *traceJSON  `json:"trace,omitempty"`
	Clocks         []clockJSON `json:"clocks,omitempty"`
}

type plainCheckpoint CheckpointEvent

type checkpointJSON struct {
	plainCheckpoint
	Took millis `json:"took_ms"`
}

// MarshalJSON writes the event as in engine run --json.
func (e CheckpointEvent) MarshalJSON() ([]byte, error) {
	return object(e, checkpointJSON{plainCheckpoint(e), millis(e.Took)}, wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *CheckpointEvent) UnmarshalJSON(data []byte) error {
	var v checkpointJSON
	if err := read(*e, data, &v); err != nil {
		return err
	}
	*e = CheckpointEvent(v.plainCheckpoint)
	e.Took = time.Duration(v.Took)
	return nil
}

// MarshalJSON writes the event as in engine run --json.
func (e WarningEvent) MarshalJSON() ([]byte, error) {
	type plain WarningEvent
	return object(e, plain(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *WarningEvent) UnmarshalJSON(data []byte) error {
	type plain WarningEvent
	return readPlain(*e, data, (*plain)(e))
}

// MarshalJSON writes the event as in engine run --json.
func (e PauseEvent) MarshalJSON() ([]byte, error) {
	type plain PauseEvent
	return object(e, plain(e), wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *PauseEvent) UnmarshalJSON(data []byte) error {
	type plain PauseEvent
	return readPlain(*e, data, (*plain)(e))
}

// MarshalJSON writes the event as in engine run --json.
func (e TextEvent) MarshalJSON() ([]byte, error) {
	type plain TextEvent
	return object(e, plain(e), wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *TextEvent) UnmarshalJSON(data []byte) error {
	type plain TextEvent
	return readPlain(*e, data, (*plain)(e))
}

// changeJSON is a Change whose rates need not be finite.
type changeJSON struct {
	Kind  ChangeKind `json:"kind"`
	Step  int64      `json:"step"`
	LR    number     `json:"lr,omitzero"`
	MinLR number     `json:"min_lr,omitzero"`
	Now   bool       `json:"now,omitempty"`

	Steps       int64  `json:"steps,omitempty"`
	WarmupSteps int64  `json:"warmup_steps,omitempty"`
	Decay       string `json:"decay,omitempty"`
	DecaySteps  int64  `json:"decay_steps,omitempty"`
	Points      string `json:"points,omitempty"`
	Note        string `json:"note,omitempty"`
}

func changeOf(c Change) changeJSON {
	return changeJSON{c.Kind, c.Step, number(c.LR), number(c.MinLR), c.Now, c.Steps, c.WarmupSteps, c.Decay, c.DecaySteps, c.Points, c.Note}
}

func (c changeJSON) change() Change {
	return Change{Kind: c.Kind, Step: c.Step, LR: float64(c.LR), MinLR: float64(c.MinLR), Now: c.Now, Steps: c.Steps,
		WarmupSteps: c.WarmupSteps, Decay: c.Decay, DecaySteps: c.DecaySteps, Points: c.Points, Note: c.Note}
}

// changesOf returns a list that is [] in JSON if it is empty.
func changesOf(all []Change) []changeJSON { return mapped(all, changeOf) }

func readChanges(all []changeJSON) []Change { return orNil(mapped(all, changeJSON.change)) }

// mapped applies f to a list. The result is not nil.
func mapped[A, B any](all []A, f func(A) B) []B {
	list := make([]B, 0, len(all))
	for _, v := range all {
		list = append(list, f(v))
	}
	return list
}

// orNil returns nil for an empty list.
func orNil[A any](all []A) []A {
	if len(all) == 0 {
		return nil
	}
	return all
}

// refusalJSON has the keys of a ChangeEvent that are not in its change.
type refusalJSON struct {
	Cancelled []changeJSON `json:"cancelled,omitempty"`
	Err       failure      `json:"error,omitzero"`
}

// MarshalJSON writes the change's keys and, if the run refused it, the error.
func (e ChangeEvent) MarshalJSON() ([]byte, error) {
	return object(e, changeOf(e.Change), refusalJSON{changesOf(e.Cancelled), failure{e.Err}}, wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *ChangeEvent) UnmarshalJSON(data []byte) error {
	var c changeJSON
	var v refusalJSON
	if err := read(*e, data, &c, &v); err != nil {
		return err
	}
	*e = ChangeEvent{c.change(), readChanges(v.Cancelled), v.Err.error}
	return nil
}

type plainRestart RestartEvent

type restartJSON struct {
	Err failure `json:"error"`
	plainRestart
}

// MarshalJSON writes the event as in engine run --json.
func (e RestartEvent) MarshalJSON() ([]byte, error) {
	return object(e, restartJSON{failure{e.Err}, plainRestart(e)}, wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *RestartEvent) UnmarshalJSON(data []byte) error {
	var v restartJSON
	if err := read(*e, data, &v); err != nil {
		return err
	}
	*e = RestartEvent(v.plainRestart)
	e.Err = v.Err.error
	return nil
}

type plainReplace ReplaceEvent

type replaceJSON struct {
	plainReplace
	Err    failure `json:"error"`
	Halted seconds `json:"halted_s"`
	Found  seconds `json:"found_s"`
	Loaded seconds `json:"loaded_s"`
}

// MarshalJSON writes the event as in engine run --json.
func (e ReplaceEvent) MarshalJSON() ([]byte, error) {
	return object(e, replaceJSON{plainReplace(e), failure{e.Err}, seconds(e.Halted), seconds(e.Found), seconds(e.Loaded)}, wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *ReplaceEvent) UnmarshalJSON(data []byte) error {
	var v replaceJSON
	if err := read(*e, data, &v); err != nil {
		return err
	}
	*e = ReplaceEvent(v.plainReplace)
	e.Err, e.Halted, e.Found, e.Loaded = v.Err.error, time.Duration(v.Halted), time.Duration(v.Found), time.Duration(v.Loaded)
	return nil
}

// MarshalJSON writes the event as in engine run --json.
func (e RegroupEvent) MarshalJSON() ([]byte, error) {
	type plain RegroupEvent
	return object(e, plain(e), wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *RegroupEvent) UnmarshalJSON(data []byte) error {
	type plain RegroupEvent
	return readPlain(*e, data, (*plain)(e))
}

// stallJSON is a StallEvent. Root is the last of the waits, which is in the status, too.
type stallJSON struct {
	Quiet  seconds `json:"quiet_s"`
	Root   string  `json:"root"`
	Status Status  `json:"status"`
}

// MarshalJSON writes the event as in engine run --json.
func (e StallEvent) MarshalJSON() ([]byte, error) {
	return object(e, stallJSON{seconds(e.Quiet), e.Status.Explain(), e.Status}, wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *StallEvent) UnmarshalJSON(data []byte) error {
	var v stallJSON
	if err := read(*e, data, &v); err != nil {
		return err
	}
	*e = StallEvent{time.Duration(v.Quiet), v.Status}
	return nil
}

// endJSON has the error of an EndEvent.
type endJSON struct {
	Err failure `json:"error,omitzero"`
}

// MarshalJSON writes the keys of the result and, if the run failed, the error.
func (e EndEvent) MarshalJSON() ([]byte, error) {
	return object(e, e.Result, endJSON{failure{e.Err}}, wordingOf(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *EndEvent) UnmarshalJSON(data []byte) error {
	var to EndEvent
	var v endJSON
	if err := read(*e, data, &to.Result, &v); err != nil {
		return err
	}
	to.Err = v.Err.error
	*e = to
	return nil
}

type plainResult Result

// resultJSON is a Result whose losses may be NaN.
type resultJSON struct {
	plainResult
	FirstValLoss number `json:"first_val_loss"`
	LastValLoss  number `json:"val_loss"`
	BestValLoss  number `json:"best_val_loss"`
}

// MarshalJSON writes the result with null for NaN and infinity.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(resultJSON{plainResult(r), number(r.FirstValLoss), number(r.LastValLoss), number(r.BestValLoss)})
}

// UnmarshalJSON reads what MarshalJSON wrote, with NaN for null.
func (r *Result) UnmarshalJSON(data []byte) error {
	v := resultJSON{FirstValLoss: number(math.NaN()), LastValLoss: number(math.NaN()), BestValLoss: number(math.NaN())}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*r = Result(v.plainResult)
	r.FirstValLoss, r.LastValLoss, r.BestValLoss = float64(v.FirstValLoss), float64(v.LastValLoss), float64(v.BestValLoss)
	return nil
}

type plainInfo Info

// infoJSON is an Info whose numbers need not be finite.
type infoJSON struct {
	plainInfo
	EpochSteps number `json:"epoch_steps"`
	Epochs     number `json:"epochs"`
	BubblePct  number `json:"ideal_bubble_pct"`
}

// MarshalJSON writes the description with null for NaN and infinity.
func (i Info) MarshalJSON() ([]byte, error) {
	return json.Marshal(infoJSON{plainInfo(i), number(i.EpochSteps), number(i.Epochs), number(i.BubblePct)})
}

// UnmarshalJSON reads what MarshalJSON wrote, with NaN for null.
func (i *Info) UnmarshalJSON(data []byte) error {
	var v infoJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*i = Info(v.plainInfo)
	i.EpochSteps, i.Epochs, i.BubblePct = float64(v.EpochSteps), float64(v.Epochs), float64(v.BubblePct)
	return nil
}

// MarshalJSON writes the event as in engine run --json.
func (e StartEvent) MarshalJSON() ([]byte, error) { return object(e, e.Info) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *StartEvent) UnmarshalJSON(data []byte) error { return read(*e, data, &e.Info) }

// MarshalJSON writes the event as in engine run --json.
func (e SampleEvent) MarshalJSON() ([]byte, error) {
	type plain SampleEvent
	return object(e, plain(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *SampleEvent) UnmarshalJSON(data []byte) error {
	type plain SampleEvent
	return readPlain(*e, data, (*plain)(e))
}

// MarshalJSON writes the event as in engine run --json.
func (e SubmittedEvent) MarshalJSON() ([]byte, error) {
	type plain SubmittedEvent
	return object(e, plain(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *SubmittedEvent) UnmarshalJSON(data []byte) error {
	type plain SubmittedEvent
	return readPlain(*e, data, (*plain)(e))
}
