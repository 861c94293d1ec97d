package actors

import (
	"fmt"
	"runtime/debug"

	"github.com/google/uuid"
)

// Names of the actors, as people read them.
const (
	schedulerName  = "scheduler"
	loaderName     = "loader"
	checkpointName = "checkpoint"
	metricsName    = "metrics"
)

func stageName(rank int) string { return fmt.Sprintf("stage %d", rank) }

// header is an actor's memory of which run and epoch it belongs to.
type header struct{ run, epoch uuid.UUID }

// accepts reports whether a message is of this run and epoch.
func (h header) accepts(m Header) bool { return m.Run == h.run && m.Epoch == h.epoch }

// Panic is a panic inside an actor, with the place it came from.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// rethrow is deferred in every Receive: protoactor hands a panic's value to the
// supervisor, but not its stack.
func rethrow() {
	if v := recover(); v != nil {
		if p, ok := v.(*Panic); ok {
			panic(p)
		}
		panic(&Panic{v, debug.Stack()})
	}
}
