package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Mark is an event of a run at a step: a line of events.jsonl.
type Mark struct {
	TimeMS int64  `json:"time_ms"` // Unix time in milliseconds
	Step   int    `json:"step"`    // number of finished steps
	Kind   string `json:"kind"`
	Text   string `json:"text,omitempty"`
}

// The kinds of marks.
const (
	MarkStart      = "start"   // the run started
	MarkResume     = "resume"  // the run resumed from a checkpoint
	MarkRestart    = "restart" // the run restarted because a process failed
	MarkReplace    = "replace" // another process computes the ranks of one that failed
	MarkRegroup    = "regroup" // the run changed its workers after a checkpoint
	MarkCheckpoint = "checkpoint"
	MarkPause      = "pause"
	MarkContinue   = "continue" // the run continued after a pause
	MarkRate       = "rate"     // the learning rate was changed
	MarkStop       = "stop"     // a stop was requested
	MarkRequest    = "request"  // another change was requested, or a request was refused
	MarkStall      = "stall"    // the run made no progress; the text has the waits
	MarkWarning    = "warning"
	MarkSample     = "sample" // samples.jsonl has a new line
	MarkEnd        = "end"    // the run ended; the text has the error, if any
)

// Warns reports whether the mark needs a person's attention.
func (m Mark) Warns() bool {
	return m.Kind == MarkWarning || m.Kind == MarkRestart || m.Kind == MarkStall
}

// The text of a failed run's end is failed and the error. Earlier versions wrote wasFailed.
const (
	failed    = "failed: "
	wasFailed = "it failed: "
)

// Failed returns the text of the end of a run that failed.
func Failed(err error) string { return failed + err.Error() }

// Failure returns the error of a failed run's end; false: the mark is not the end of a failed run.
func (m Mark) Failure() (text string, ok bool) {
	if m.Kind != MarkEnd {
		return "", false
	}
	if text, ok = strings.CutPrefix(m.Text, failed); ok {
		return text, true
	}
	return strings.CutPrefix(m.Text, wasFailed)
}

// maxMarkText is the number of bytes of a mark's text that are kept, and maxMarkBytes the longest line: JSON writes a
// byte as up to six.
const (
	maxMarkText  = 8 << 10
	maxMarkBytes = 6*maxMarkText + 1<<10
)

var marks = lines[Mark]{what: "events", most: maxMarkBytes, step: func(m Mark) int { return m.Step }}

// MarshalJSON writes a line of events.jsonl. It cuts a text that is longer than the limit.
func (m Mark) MarshalJSON() ([]byte, error) {
	type plain Mark
	m.Text = shorten(m.Text, maxMarkText)
	return json.Marshal(plain(m))
}

// UnmarshalJSON reads a line that MarshalJSON wrote. It ignores unknown keys and keeps unknown kinds.
func (m *Mark) UnmarshalJSON(data []byte) error {
	type plain Mark
	var p struct {
		plain
		Step *int `json:"step"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if err := checkStep(p.Step); err != nil {
		return err
	}
	if p.Kind == "" {
		return errors.New(`"kind" is missing`)
	}
	*m = Mark(p.plain)
	m.Step = *p.Step
	return nil
}

// checkStep rejects a line without a step.
func checkStep(step *int) error {
	switch {
	case step == nil:
		return errors.New(`"step" is missing`)
	case *step < 0:
		return fmt.Errorf("step = %d is negative", *step)
	}
	return nil
}

// shorten cuts a text to at most a number of bytes, between two characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text // JSON writes invalid bytes as U+FFFD
	}
	const more = "…"
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// MarkWriter appends marks to an events.jsonl.
type MarkWriter = LineWriter[Mark]

// OpenMarks opens an events.jsonl of a folder for appending and removes marks after step cutToStep, as OpenWriter
// does for a metrics.jsonl. The first Write creates the file if it does not exist.
func OpenMarks(fsys folder.FS, name string, cutToStep int) (*MarkWriter, error) {
	return marks.openLater(fsys, name, cutToStep)
}

// ReadMarks returns the marks of an events.jsonl. It leaves out a truncated last line.
func ReadMarks(path string) ([]Mark, error) { return marks.read(path) }

// ReadMarksFrom is ReadMarks for a file of an open folder.
func ReadMarksFrom(fsys folder.FS, name string) ([]Mark, error) { return marks.readFrom(fsys, name) }
