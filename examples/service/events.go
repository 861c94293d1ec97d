package main

import (
	"encoding/json"
	"sync"

	"github.com/troupe-ml/troupe"
)

// eventLog keeps the last events of a run for any number of readers. It never waits for a reader.
type eventLog struct {
	mu      sync.Mutex
	events  []entry // the last limitEvents events; the newest has number n
	n       int64
	changed chan struct{} // closed when an event is added
	state   state
}

// entry is an event in the form that readers get.
type entry struct {
	id   int64 // from 1
	kind string
	data []byte
}

// state is the state of a run after its events.
type state struct {
	State      string   `json:"state"` // running, paused, finished, stopped or failed
	Step       int      `json:"step"`
	Loss       *float64 `json:"loss,omitempty"`
	ValLoss    *float64 `json:"val_loss,omitempty"`
	Checkpoint string   `json:"checkpoint,omitempty"`
	Error      string   `json:"error,omitempty"`
}

func newEventLog() *eventLog {
	return &eventLog{changed: make(chan struct{}), state: state{State: "running"}}
}

// add adds an event, in the JSON of engine run --json, and applies its change to the state.
func (l *eventLog) add(e troupe.Event, change func(*state)) {
	b, err := json.Marshal(e)
	if err != nil { // not for an event of a run
		b, _ = json.Marshal(map[string]string{"error": err.Error()}) // a map of strings can always be marshaled
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if change != nil {
		change(&l.state)
	}
	if len(l.events) == limitEvents {
		copy(l.events, l.events[1:])
		l.events = l.events[:limitEvents-1]
	}
	l.n++
	l.events = append(l.events, entry{l.n, troupe.EventKind(e), b})
	close(l.changed)
	l.changed = make(chan struct{})
}

// after returns the events after one, oldest first, and how many of those have been dropped. more is closed when
// another event is added; nil: the run has ended.
func (l *eventLog) after(id int64) (events []entry, lost int64, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.n - int64(len(l.events)) + 1
	if id > l.n {
		id = l.n // from an earlier start of the service
	}
	lost = max(0, first-1-id)
	events = append(events, l.events[max(id+1, first)-first:]...)
	if l.state.over() {
		return events, lost, nil
	}
	return events, lost, l.changed
}

func (s state) over() bool { return s.State != "running" && s.State != "paused" }

func (l *eventLog) now() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *eventLog) ended() bool { return l.now().over() }
