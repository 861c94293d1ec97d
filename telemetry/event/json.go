package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// ErrKind means that Decode does not know a line's kind of event. A later version may have written it: skip the line.
var ErrKind = errors.New("unknown kind of event")

// kind is a type of events: its word in JSON, the value of the key "event", and its reader.
type kind struct {
	word   string
	is     func(Event) bool
	decode func(line []byte) (Event, error)
}

// kinds are all kinds of events, in the order of docs/events.md.
var kinds = []kind{
	kindOf[StartEvent]("start"),
	kindOf[StepEvent]("step"),
	kindOf[CheckpointEvent]("checkpoint"),
	kindOf[WarningEvent]("warning"),
	kindOf[PauseEvent]("pause"),
	kindOf[TextEvent]("text"),
	kindOf[ChangeEvent]("change"),
	kindOf[StallEvent]("stall"),
	kindOf[RestartEvent]("restart"),
	kindOf[ReplaceEvent]("replace"),
	kindOf[RegroupEvent]("regroup"),
	kindOf[EndEvent]("end"),
	kindOf[SampleEvent]("sample"),
	kindOf[SubmittedEvent]("submitted"),
}

func kindOf[E Event](word string) kind {
	is := func(e Event) bool {
		_, ok := e.(E)
		return ok
	}
	return kind{word, is, func(line []byte) (Event, error) {
		var e E
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		return e, nil
	}}
}

// Decode reads one JSON object that an event's MarshalJSON wrote, such as a line of engine run --json. It ignores
// unknown keys. The error is ErrKind if it does not know the kind of event.
//
// The event is equal to the one that was written, with these exceptions: an error is its text; infinity is NaN; a time
// has no monotonic clock reading, so compare times with time.Time.Equal.
func Decode(line []byte) (Event, error) {
	word, err := wordOf(line)
	if err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	if word == "" {
		return nil, errors.New(`read an event: the key "event" is missing`)
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.word == word })
	if i < 0 {
		return nil, fmt.Errorf("%w: %.40q", ErrKind, word)
	}
	e, err := kinds[i].decode(line)
	if err != nil {
		return nil, fmt.Errorf("read an event of the kind %q: %w", word, err)
	}
	return e, nil
}

// wordOf reads the kind of an event; "": the JSON has none.
func wordOf(data []byte) (string, error) {
	var head struct {
		Event string `json:"event"`
	}
	err := json.Unmarshal(data, &head)
	return head.Event, err
}

// Kind returns the word for an event's kind, the value of the key "event" in its JSON. "": it is not an event.
func Kind(e Event) string {
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.is(e) }); i >= 0 {
		return kinds[i].word
	}
	return ""
}

// Line returns the JSON of an event with further keys after its own: those of the JSON objects in more.
func Line(e Event, more ...any) ([]byte, error) { return join(append([]any{e}, more...)...) }

// object is the JSON of an event: its kind, then the keys of the objects.
func object(e Event, parts ...any) ([]byte, error) {
	return join(append([]any{struct {
		Event string `json:"event"`
	}{Kind(e)}}, parts...)...)
}

// join marshals values that are JSON objects into one object.
func join(parts ...any) ([]byte, error) {
	text := []byte{'{'}
	for _, part := range parts {
		fields, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		if len(fields) <= len("{}") {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(text, fields[1:len(fields)-1]...)
	}
	return append(text, '}'), nil
}

// read reads the JSON of an event of the same kind as e into parts. An object without a kind counts as one.
func read(e Event, data []byte, parts ...any) error {
	word, err := wordOf(data)
	if err != nil {
		return err
	}
	if want := Kind(e); word != "" && word != want {
		return fmt.Errorf("the object is an event of the kind %.40q, not %q", word, want)
	}
	for _, part := range parts {
		if err := json.Unmarshal(data, part); err != nil {
			return err
		}
	}
	return nil
}

// readPlain reads an event whose keys are its fields. to is the event as a type without UnmarshalJSON.
func readPlain[P any](e Event, data []byte, to *P) error {
	var v P
	if err := read(e, data, &v); err != nil {
		return err
	}
	*to = v
	return nil
}

// number is null in JSON if it is not finite. null reads as NaN.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func (n *number) UnmarshalJSON(data []byte) error {
	v := math.NaN()
	if string(data) != "null" {
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
	}
	*n = number(v)
	return nil
}

// millis and seconds are durations as numbers. They keep every nanosecond of a duration below 52 days.
type (
	millis  time.Duration
	seconds time.Duration
)

func (d millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(d) / float64(time.Millisecond))
}
func (d seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(d) / float64(time.Second))
}

func (d *millis) UnmarshalJSON(data []byte) error {
	v, err := readDuration(data, time.Millisecond)
	*d = millis(v)
	return err
}

func (d *seconds) UnmarshalJSON(data []byte) error {
	v, err := readDuration(data, time.Second)
	*d = seconds(v)
	return err
}

// readDuration reads a number of units. A number that no duration has is the longest one.
func readDuration(data []byte, unit time.Duration) (time.Duration, error) {
	var v float64
	if err := json.Unmarshal(data, &v); err != nil {
		return 0, err
	}
	v = math.Round(v * float64(unit))
	switch {
	case v >= math.MaxInt64:
		return math.MaxInt64, nil
	case v <= math.MinInt64:
		return math.MinInt64, nil
	}
	return time.Duration(v), nil
}

// failure is an error as its text. null or "": there is none.
type failure struct{ error }

func (f failure) MarshalJSON() ([]byte, error) {
	if f.error == nil {
		return []byte("null"), nil
	}
	return json.Marshal(f.Error())
}

func (f *failure) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if f.error = nil; text != "" {
		f.error = errors.New(text)
	}
	return nil
}

// IsZero lets omitzero leave out an error that there is not.
func (f failure) IsZero() bool { return f.error == nil }

// wording is the text of an event for people, which is derived from it.
type wording struct {
	Text string `json:"text"`
}

func wordingOf(e Event) wording {
	m, _ := MarkOf(e, 0)
	return wording{m.Text}
}
