package event

import (
	"encoding/json"
	"slices"
	"time"
)

// statusJSON is a Status. Root and Chain are derived from it, as is Text of its actors.
type statusJSON struct {
	Time      time.Time     `json:"time"`
	Step      int64         `json:"step"`
	Steps     int64         `json:"steps"`
	Remaining *seconds      `json:"remaining_s"`
	Actors    []actorJSON   `json:"actors"`
	Root      string        `json:"root"`
	Chain     []string      `json:"chain"`
	Requests  []changeJSON  `json:"requests"`
	Cut       []cutLinkJSON `json:"cut_links"`
}

// actorJSON is a Snapshot. Its times count from the status's time.
type actorJSON struct {
	Actor      string   `json:"actor"`
	Host       string   `json:"host"`
	Rank       int      `json:"rank"`
	Step       int64    `json:"step"`
	Phase      Phase    `json:"phase,omitzero"`
	Doing      Doing    `json:"doing"`
	Action     action   `json:"action,omitzero"`
	Wait       Wait     `json:"wait,omitzero"`
	Needs      action   `json:"needs,omitzero"`
	From       string   `json:"waits_for"`
	Held       int      `json:"held,omitempty"`
	Need       int      `json:"need,omitempty"`
	Collective string   `json:"collective,omitempty"`
	Since      *seconds `json:"since_s"`
	Heard      *seconds `json:"heard_s"`
	Text       string   `json:"text"`
}

type cutLinkJSON struct {
	From string  `json:"from"`
	To   string  `json:"to"`
	For  seconds `json:"for_s"`
}

// MarshalJSON writes the status with words for what actors do and wait for. docs/events.md lists the keys.
func (s Status) MarshalJSON() ([]byte, error) {
	v := statusJSON{Time: s.Time.UTC(), Step: s.Step, Steps: s.Steps, Actors: []actorJSON{}, Root: s.Explain(),
		Chain:    append([]string{}, s.Chain()...),
		Requests: changesOf(s.Requests), Cut: []cutLinkJSON{}}
	if s.Remaining > 0 {
		v.Remaining = (*seconds)(&s.Remaining)
	}
	ago := func(t time.Time) *seconds {
		if t.IsZero() {
			return nil
		}
		d := seconds(s.Time.Sub(t))
		return &d
	}
	for _, a := range s.Actors {
		v.Actors = append(v.Actors, actorJSON{Actor: a.Actor, Host: a.Host, Rank: a.Rank, Step: a.Step, Phase: a.Phase, Doing: a.Doing,
			Action: action(a.Action), Wait: a.Wait, Needs: action(a.Needs), From: a.From, Held: a.Held, Need: a.Need, Collective: a.Collective,
			Since: ago(a.Since), Heard: ago(a.Heard), Text: a.Describe()})
	}
	for _, l := range s.Cut {
		v.Cut = append(v.Cut, cutLinkJSON{l.From, l.To, seconds(l.For)})
	}
	return json.Marshal(v)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Status) UnmarshalJSON(data []byte) error {
	var v statusJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	to := Status{Time: v.Time, Step: v.Step, Steps: v.Steps, Requests: readChanges(v.Requests)}
	if v.Remaining != nil {
		to.Remaining = time.Duration(*v.Remaining)
	}
	at := func(ago *seconds) time.Time {
		if ago == nil {
			return time.Time{}
		}
		return v.Time.Add(-time.Duration(*ago))
	}
	for _, a := range v.Actors {
		to.Actors = append(to.Actors, Snapshot{Actor: a.Actor, Host: a.Host, Rank: a.Rank, Step: a.Step, Phase: a.Phase, Doing: a.Doing,
			Action: a.Action.value(), Wait: a.Wait, Needs: a.Needs.value(), From: a.From, Held: a.Held, Need: a.Need, Collective: a.Collective,
			Since: at(a.Since), Heard: at(a.Heard)})
	}
	for _, l := range v.Cut {
		to.Cut = append(to.Cut, CutLink{l.From, l.To, time.Duration(l.For)})
	}
	*s = to
	return nil
}

// unknown is the value of a word that this version does not know. A later version may have written it.
const unknown = 255

// wordAt returns the word of a value.
func wordAt[V ~uint8](words []string, v V) string {
	if int(v) >= len(words) {
		return "unknown"
	}
	return words[v]
}

// valueOf returns the value of a word.
func valueOf[V ~uint8](words []string, word []byte) V {
	if i := slices.Index(words, string(word)); i >= 0 {
		return V(i)
	}
	return unknown
}

// MarshalText returns the phase as a word; "": no phase.
func (p Phase) MarshalText() ([]byte, error) { return []byte(wordAt(phases[:], p)), nil }

// UnmarshalText reads what MarshalText wrote. It accepts unknown words.
func (p *Phase) UnmarshalText(text []byte) error {
	*p = valueOf[Phase](phases[:], text)
	return nil
}

// MarshalText returns the activity in words.
func (d Doing) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote. It accepts unknown words.
func (d *Doing) UnmarshalText(text []byte) error {
	*d = valueOf[Doing](doings[:], text)
	return nil
}

// MarshalText returns what is waited for as a word; "": nothing.
func (w Wait) MarshalText() ([]byte, error) { return []byte(wordAt(waits[:], w)), nil }

// UnmarshalText reads what MarshalText wrote. It accepts unknown words.
func (w *Wait) UnmarshalText(text []byte) error {
	*w = valueOf[Wait](waits[:], text)
	return nil
}
