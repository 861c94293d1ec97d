package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// statusCell holds an actor's latest Snapshot. It may be read at any time from any goroutine.
type statusCell struct {
	mu    sync.Mutex
	snap  event.Snapshot
	moves *atomic.Int64 // counts changes of all cells of a run
	// actions holds the actions that a stage has finished, if its orders are timed; otherwise nil.
	actions atomic.Pointer[actionLog]
}

// newStatusCell makes a cell whose changes are counted in moves.
func newStatusCell(name string, rank int, moves *atomic.Int64) *statusCell {
	return &statusCell{snap: event.Snapshot{Actor: name, Rank: rank, Since: time.Now()}, moves: moves}
}

// Load returns the latest snapshot.
func (c *statusCell) Load() event.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap
}

// observe replaces the snapshot with one from another process.
func (c *statusCell) observe(s event.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.snap
	// A new message from the other process is not progress, and the start of what its actor does
	// varies slightly with each message, since its age is relative to the message. Real progress
	// shows in the other fields, or in another actor.
	was.Heard, was.Since = s.Heard, s.Since
	if c.snap = s; s != was {
		c.moves.Add(1)
	}
}

// store replaces what the actor does. The name stays; the time becomes now unless nothing has
// changed.
func (c *statusCell) store(s event.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Actor, s.Rank, s.Since = c.snap.Actor, c.snap.Rank, c.snap.Since
	if s == c.snap {
		return
	}
	s.Since = time.Now()
	c.snap = s
	c.moves.Add(1)
}
