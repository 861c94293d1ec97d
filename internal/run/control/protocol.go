package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// version is the version of the protocol. Both sides must have the same.
const version = 1

// op is what a client requests.
type op string

const (
	opStatus op = "status" // how the run is
	opChange op = "change" // make a change
	opKill   op = "kill"   // end the run at once, without a checkpoint
	opFollow op = "follow" // send the run's description and its events from now on, one a line
)

// request is a line of a client.
type request struct {
	Version int           `json:"version"`
	Op      op            `json:"op"`
	Change  *event.Change `json:"change,omitempty"`
}

// answer is a line of the run.
type answer struct {
	Version int    `json:"version"`
	Error   string `json:"error,omitempty"` // the request was refused
	Busy    bool   `json:"busy,omitempty"`  // for a reason that passes
	State   *State `json:"state,omitempty"`
}

// State is how a run is.
type State struct {
	ID   string `json:"id"` // a UUID; "": none
	Name string `json:"name"`
	Out  string `json:"out"` // the run's folder, as the run knows it
	PID  int    `json:"pid"` // of the process
	// Began is when the process started the run.
	Began      time.Time `json:"began"`
	Step       int       `json:"step"`
	Steps      int       `json:"steps"`
	Loss       *float64  `json:"loss"`
	ValLoss    *float64  `json:"val_loss"`
	LR         *float64  `json:"lr"`
	TokensPerS *float64  `json:"tokens_per_s"`
	Restarts   int       `json:"restarts"`
	Checkpoint string    `json:"checkpoint"` // the folder of the last one since Began; "": none
	Followers  int       `json:"followers"`
	// Actors are what the run's actors do.
	Actors event.Status `json:"actors"`
}

// parseRequest reads the line of a client.
func parseRequest(line []byte) (q request, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return q, fmt.Errorf("the request is not valid: %w", err)
	}
	switch _, end := dec.Token(); {
	case end != io.EOF:
		return q, errors.New("the request is not valid: there is text after the object")
	case q.Version != version:
		return q, fmt.Errorf("the request has version %d of the protocol, this run %d: use the same build", q.Version, version)
	case q.Op != opStatus && q.Op != opChange && q.Op != opKill && q.Op != opFollow:
		return q, fmt.Errorf("unknown request %.40q: use the same build", q.Op)
	case (q.Change != nil) != (q.Op == opChange):
		return q, fmt.Errorf("a request %q with a change, or a change without one: use the same build", q.Op)
	case q.Change == nil:
		return q, nil
	}
	return q, q.Change.Check()
}

// parseAnswer reads a line of the run.
func parseAnswer(line []byte) (a answer, err error) {
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("the answer of the run is not valid: %w", err)
	}
	switch {
	case a.Version != version:
		return a, fmt.Errorf("the run has version %d of the protocol, this program %d: use the same build", a.Version, version)
	case a.Error == "" && a.State == nil:
		return a, errors.New("the answer of the run is empty")
	case a.State == nil:
		return a, nil
	}
	for _, s := range a.State.Actors.Actors {
		if s.Doing > event.Failing || s.Wait > event.WaitShadow || s.Phase > event.Eval {
			return a, fmt.Errorf("the answer of the run names an unknown activity of %.40q: use the same build", s.Actor)
		}
	}
	return a, nil
}

// errTooLong means that a line is longer than its limit.
var errTooLong = errors.New("the line is too long")

// readLine reads a line of at most a number of bytes, without its end. The result is valid until the next call.
func readLine(r *bufio.Reader, most int, long *[]byte) ([]byte, error) {
	*long = (*long)[:0]
	for {
		part, err := r.ReadSlice('\n')
		if len(*long)+len(part) > most {
			return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, most)
		}
		if err == nil && len(*long) == 0 {
			return part[:len(part)-1], nil
		}
		*long = append(*long, part...)
		switch {
		case err == nil:
			return (*long)[:len(*long)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(*long) > 0:
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
}
