package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Mark is something that happened to a run at a step, for those who look at its curves later: a
// line of events.jsonl.
type Mark struct {
	TimeMS int64  `json:"time_ms"` // since 1970
	Step   int    `json:"step"`    // finished steps
	Kind   string `json:"kind"`
	Text   string `json:"text,omitempty"`
}

// The kinds of marks.
const (
	MarkStart      = "start"   // the run began
	MarkResume     = "resume"  // it went on from a checkpoint
	MarkRestart    = "restart" // by itself, since a process was lost
	MarkCheckpoint = "checkpoint"
	MarkPause      = "pause"
	MarkContinue   = "continue" // after a pause
	MarkRate       = "rate"     // the learning rate was changed
	MarkStop       = "stop"     // somebody has asked for it
	MarkRequest    = "request"  // somebody has asked for another change, or one was refused
	MarkStall      = "stall"    // nothing moved; with who waits for whom
	MarkWarning    = "warning"
	MarkSample     = "sample" // samples.jsonl has another line
	MarkEnd        = "end"    // with the error, if there is one
)

// Warns reports whether a person should look into it.
func (m Mark) Warns() bool {
	return m.Kind == MarkWarning || m.Kind == MarkRestart || m.Kind == MarkStall
}

// The text of the end of a run that failed is this and the error. Earlier versions wrote the second one.
const (
	failed    = "failed: "
	wasFailed = "it failed: "
)

// Failed is the text of the end of a run that failed.
func Failed(err error) string { return failed + err.Error() }

// Failure is the error of the end of a run that failed; false: it is no such mark.
func (m Mark) Failure() (text string, ok bool) {
	if m.Kind != MarkEnd {
		return "", false
	}
	if text, ok = strings.CutPrefix(m.Text, failed); ok {
		return text, true
	}
	return strings.CutPrefix(m.Text, wasFailed)
}

// maxMarkText is how many bytes of a mark's text are kept, and maxMarkBytes the longest line:
// JSON writes a byte as up to six.
const (
	maxMarkText  = 8 << 10
	maxMarkBytes = 6*maxMarkText + 1<<10
)

var marks = lines[Mark]{what: "events", most: maxMarkBytes, step: func(m Mark) int { return m.Step }}

// MarshalJSON cuts the text to what a line may hold.
func (m Mark) MarshalJSON() ([]byte, error) {
	type plain Mark
	m.Text = shorten(m.Text, maxMarkText)
	return json.Marshal(plain(m))
}

// UnmarshalJSON reads what MarshalJSON writes. Other keys are ignored, and kinds that a later
// version has are kept.
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
		return errors.New(`there is no "kind"`)
	}
	*m = Mark(p.plain)
	m.Step = *p.Step
	return nil
}

// checkStep refuses a line that is of no step.
func checkStep(step *int) error {
	switch {
	case step == nil:
		return errors.New(`there is no "step"`)
	case *step < 0:
		return fmt.Errorf("the step is %d", *step)
	}
	return nil
}

// shorten cuts a text to so many bytes of whole characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text // of which JSON writes what is no character as U+FFFD
	}
	const more = "…"
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// MarkWriter appends marks to an events.jsonl.
type MarkWriter = LineWriter[Mark]

// OpenMarks opens an events.jsonl of a folder for appending, as OpenWriter does a metrics.jsonl:
// marks of steps behind cutToStep are removed. A file that is not there is made with its first line.
func OpenMarks(fsys folder.FS, name string, cutToStep int) (*MarkWriter, error) {
	return marks.openLater(fsys, name, cutToStep)
}

// ReadMarks returns the marks of an events.jsonl. A last line that is cut short is not one of
// them.
func ReadMarks(path string) ([]Mark, error) { return marks.read(path) }

// ReadMarksFrom is ReadMarks for a file of an open folder.
func ReadMarksFrom(fsys folder.FS, name string) ([]Mark, error) { return marks.readFrom(fsys, name) }
