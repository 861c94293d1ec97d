package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// Doing says what an actor is at.
type Doing uint8

// What an actor may be doing.
const (
	Idle     Doing = iota // nothing is asked of it
	Starting              // making or loading weights
	Running               // its device executes Action
	Waiting               // Action cannot start yet: see Wait
	Reducing              // sums up gradients
	Updating              // the optimizer's step
	Copying               // its state, for a checkpoint
	Reading               // data
	Writing               // a checkpoint, or the line of a step
	Paused
	Finished
	Failing
)

var doings = [...]string{"idle", "starting", "running", "waiting", "summing gradients", "updating weights", "copying state", "reading", "writing", "paused", "finished", "failed"}

func (d Doing) String() string { return doings[d] }

// Wait says what an actor waits for.
type Wait uint8

// What an actor may wait for.
const (
	WaitNothing    Wait = iota
	WaitActivation      // the output of Needs, a forward
	WaitGradient        // the output of Needs, a backward
	WaitTokens          // tokens or targets of Needs.Microbatch
	WaitCredit          // the consumer of Action's output has not taken earlier ones
	WaitTied            // another rank's gradient of a tied weight
	WaitOrder           // the next order
	WaitStages          // the stages' reports
	WaitDecision        // the scheduler's decision about the step
	WaitDisk            // something being written
	WaitRoom            // room for an output: the rank may hold no more
	WaitGroup           // another rank, in Collective
)

// Snapshot is what an actor is doing at a moment.
type Snapshot struct {
	Actor string
	Rank  int // of a stage, else −1
	Step  int64
	Phase Phase
	Doing Doing
	// The action that runs or is next, for a stage.
	Action scheduler.Action
	// What it waits for: the action whose output is missing, and the actor that
	// has to provide it. Held and Need count credits or reports.
	Wait       Wait
	Needs      scheduler.Action
	From       string
	Held, Need int
	// Collective is the one that the device waits in, of a stage that shares work with others.
	Collective string
	Since      time.Time
	// Host is the worker that the actor is in, "" for this process, and Heard when that was
	// heard of last.
	Host  string
	Heard time.Time
}

// StatusCell holds an actor's latest Snapshot. Anybody may read it at any moment.
type StatusCell struct {
	mu    sync.Mutex
	snap  Snapshot
	moves *atomic.Int64 // counts changes of all cells of a run
	// actions are those that a stage has finished, while its orders are timed; else nil.
	actions atomic.Pointer[actionLog]
}

// NewStatusCell makes a cell whose changes are counted in moves.
func NewStatusCell(name string, rank int, moves *atomic.Int64) *StatusCell {
	return &StatusCell{snap: Snapshot{Actor: name, Rank: rank, Since: time.Now()}, moves: moves}
}

// Load returns the latest snapshot.
func (c *StatusCell) Load() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap
}

// observe replaces the snapshot by another process's.
func (c *StatusCell) observe(s Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.snap
	was.Heard = s.Heard // that it was heard is no move
	if c.snap = s; s != was {
		c.moves.Add(1)
	}
}

// store replaces what the actor does; the name stays, and the time is now unless
// nothing has changed.
func (c *StatusCell) store(s Snapshot) {
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
