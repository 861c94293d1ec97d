package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// action is an action in the words of a table: 0F3. A + marks the first action of an overlapped pair. "": none.
type action scheduler.Action

func (a action) value() scheduler.Action { return scheduler.Action(a) }

func (a action) MarshalText() ([]byte, error) {
	if a == (action{}) {
		return nil, nil
	}
	text := a.value().String()
	if a.Overlap {
		text += "+"
	}
	return []byte(text), nil
}

var actionPattern = regexp.MustCompile(`^(\d+)([FIWB])(\d+)(\+?)$`)

func (a *action) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = action{}
		return nil
	}
	parts := actionPattern.FindSubmatch(text)
	if parts == nil {
		return fmt.Errorf("action %.40q is not of the form 0F3", text)
	}
	chunk, err := strconv.ParseInt(string(parts[1]), 10, 32)
	microbatch, err2 := strconv.ParseInt(string(parts[3]), 10, 32)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("action %.40q: %w", text, err)
	}
	*a = action{Chunk: int32(chunk), Type: scheduler.Type(strings.Index("?FIWB", string(parts[2]))), Microbatch: int32(microbatch),
		Overlap: len(parts[4]) > 0}
	return nil
}

// traceJSON has the actions of a step by rank. Their times count from Began.
type traceJSON struct {
	Began time.Time          `json:"began"`
	Ranks [][]actionTimeJSON `json:"ranks"`
}

type actionTimeJSON struct {
	Action action         `json:"action"`
	Start  millis         `json:"start_ms"`
	End    millis         `json:"end_ms"`
	Parts  []partTimeJSON `json:"parts,omitempty"`
}

// partTimeJSON is a part of an action. The last one has no exchange.
type partTimeJSON struct {
	Start    millis       `json:"start_ms"`
	End      millis       `json:"end_ms"`
	Exchange exchangeType `json:"exchange,omitzero"`
	Sent     millis       `json:"sent_ms,omitempty"`
	Came     millis       `json:"came_ms,omitempty"`
}

// exchangeType is FD, FC, BD or BC. 0: none.
type exchangeType scheduler.Type

func (t exchangeType) MarshalText() ([]byte, error) { return []byte(scheduler.Type(t).String()), nil }

func (t *exchangeType) UnmarshalText(text []byte) error {
	for typ := scheduler.FD; typ <= scheduler.BC; typ++ {
		if typ.String() == string(text) {
			*t = exchangeType(typ)
			return nil
		}
	}
	return fmt.Errorf("exchange %.40q is none of FD, FC, BD and BC", text)
}

// traceOf returns the JSON of a trace; nil: there is none.
func traceOf(ranks [][]ActionTime) *traceJSON {
	if ranks == nil {
		return nil
	}
	t := &traceJSON{Ranks: make([][]actionTimeJSON, len(ranks))}
	for _, row := range ranks {
		if len(row) > 0 && (t.Began.IsZero() || row[0].Start.Before(t.Began)) {
			t.Began = row[0].Start.UTC()
		}
	}
	t.Ranks = rowsOf(ranks, t.Began)
	return t
}

func rowsOf(ranks [][]ActionTime, began time.Time) [][]actionTimeJSON {
	return mapped(ranks, func(row []ActionTime) []actionTimeJSON {
		return mapped(row, func(a ActionTime) actionTimeJSON {
			return actionTimeJSON{action(a.Action), millis(a.Start.Sub(began)), millis(a.End.Sub(began)), partsOf(a.Parts, began)}
		})
	})
}

func partsOf(parts []scheduler.PartTime, began time.Time) []partTimeJSON {
	return mapped(parts, func(p scheduler.PartTime) partTimeJSON {
		v := partTimeJSON{Start: millis(p.Start.Sub(began)), End: millis(p.End.Sub(began))}
		if p.Exchange != 0 {
			v.Exchange, v.Sent, v.Came = exchangeType(p.Exchange), millis(p.Sent.Sub(began)), millis(p.Came.Sub(began))
		}
		return v
	})
}

func (t *traceJSON) times() [][]ActionTime {
	if t == nil || t.Ranks == nil {
		return nil
	}
	return mapped(t.Ranks, func(row []actionTimeJSON) []ActionTime {
		return orNil(mapped(row, func(a actionTimeJSON) ActionTime {
			return ActionTime{a.Action.value(), t.at(a.Start), t.at(a.End), t.parts(a.Parts)}
		}))
	})
}

func (t *traceJSON) parts(all []partTimeJSON) []scheduler.PartTime {
	return orNil(mapped(all, func(v partTimeJSON) scheduler.PartTime {
		p := scheduler.PartTime{Start: t.at(v.Start), End: t.at(v.End)}
		if v.Exchange != 0 {
			p.Exchange, p.Sent, p.Came = scheduler.Type(v.Exchange), t.at(v.Sent), t.at(v.Came)
		}
		return p
	}))
}

func (t *traceJSON) at(since millis) time.Time { return t.Began.Add(time.Duration(since)) }

// clockJSON is a Clock, with the keys of trace.jsonl.
type clockJSON struct {
	Process string `json:"host"`
	Ahead   millis `json:"offset_ms"`
	Within  millis `json:"uncertainty_ms"`
}

func clocksOf(all []Clock) []clockJSON {
	return mapped(all, func(c Clock) clockJSON { return clockJSON{c.Process, millis(c.Ahead), millis(c.Within)} })
}

func readClocks(all []clockJSON) []Clock {
	return orNil(mapped(all, func(c clockJSON) Clock {
		return Clock{c.Process, time.Duration(c.Ahead), time.Duration(c.Within)}
	}))
}

// actionsJSON is Actions.
type actionsJSON struct {
	Step  int64 `json:"step"`
	Phase Phase `json:"phase"`
	traceJSON
}

// MarshalJSON writes the actions like the trace of a StepEvent.
func (a Actions) MarshalJSON() ([]byte, error) {
	v := actionsJSON{a.Step, a.Phase, traceJSON{Began: a.Began.UTC()}}
	if a.Ranks != nil {
		v.Ranks = rowsOf(a.Ranks, a.Began)
	}
	return json.Marshal(v)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (a *Actions) UnmarshalJSON(data []byte) error {
	var v actionsJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*a = Actions{Step: v.Step, Phase: v.Phase, Began: v.Began, Ranks: v.times()}
	return nil
}
