package control

import (
	"errors"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// Stream is the events of a run, from the time of the request on.
type Stream struct {
	Info   event.Info
	client *Client
}

// Follow requests the events of the run. The client is for nothing else then.
func (c *Client) Follow() (*Stream, error) {
	line, err := c.exchange(request{Version: version, Op: opFollow})
	if err != nil {
		return nil, err
	}
	e, err := event.Decode(line)
	if start, ok := e.(event.StartEvent); ok {
		return &Stream{start.Info, c}, c.conn.SetDeadline(time.Time{})
	}
	if refused, ok := parseAnswer(line); ok == nil { // it is no event
		return nil, refused.refusal()
	}
	return nil, errors.Join(errors.New("the run does not send its events: use the same build"), err)
}

// Next returns the next event; the last one is an EndEvent.
func (s *Stream) Next() (event.Event, error) {
	for {
		line, err := readLine(s.client.in, limitAnswerBytes, &s.client.long)
		switch {
		case errors.Is(err, errTooLong):
			return nil, err
		case err != nil:
			return nil, gone(err)
		}
		e, err := event.Decode(line)
		if errors.Is(err, event.ErrKind) {
			continue // of a later version
		}
		return e, err
	}
}

// Close ends the stream. Next returns an error then.
func (s *Stream) Close() { s.client.Close() }
