package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// statusCell holds an actor's latest Snapshot. Anybody may read it at any moment.
type statusCell struct {
	mu    sync.Mutex
	snap  event.Snapshot
	moves *atomic.Int64 // counts changes of all cells of a run
	// actions are those that a stage has finished, while its orders are timed; else nil.
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

// observe replaces the snapshot by another process's.
func (c *statusCell) observe(s event.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.snap
	// That the other process was heard is no move, and since when its actor does what it does comes a little different
	// each time: its age is taken from the moment of the message. Whatever moves shows in the rest, or in another actor.
	was.Heard, was.Since = s.Heard, s.Since
	if c.snap = s; s != was {
		c.moves.Add(1)
	}
}

// store replaces what the actor does; the name stays, and the time is now unless
// nothing has changed.
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
