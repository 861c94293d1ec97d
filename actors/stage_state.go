package actors

import "github.com/asynkron/protoactor-go/actor"

// stageState is where a stage actor is in its life. A failure is no state: what is under
// way goes on, but nothing starts any more (part.failed), until the supervisor says halt.
type stageState uint8

const (
	stageCreated  stageState = iota // knows nobody
	stageBuilding                   // a goroutine makes the stage
	stageResting                    // what comes next may start
	stageRunning                    // the device executes a list
	stageHalting                    // as building or running, and told to halt
	stageHalted                     // for good
)

// stageEvent is what moves a stage actor from one state to the next.
type stageEvent uint8

const (
	peersKnown stageEvent = iota
	submitted
	atRest // the goroutine that makes the stage, or the device, has answered
	haltAsked
)

// stageMoves has the state that follows; an event that it doesn't name changes nothing.
var stageMoves = [...][haltAsked + 1]stageState{
	stageCreated:  {peersKnown: stageBuilding, haltAsked: stageHalted},
	stageBuilding: {atRest: stageResting, haltAsked: stageHalting},
	stageResting:  {submitted: stageRunning, haltAsked: stageHalted},
	stageRunning:  {atRest: stageResting, haltAsked: stageHalting},
	stageHalting:  {atRest: stageHalted},
	stageHalted:   {},
}

// on is the state that follows an event.
func (s stageState) on(e stageEvent) stageState {
	if next := stageMoves[s][e]; next != stageCreated {
		return next
	}
	return s
}

// move follows an event. A stage that comes to halt says so and frees what it holds.
func (a *stageActor) move(ctx actor.Context, e stageEvent) {
	before := a.state
	a.state = before.on(e)
	if a.state == stageHalted && before != stageHalted {
		ctx.Send(ctx.Parent(), &halted{a.rank})
		a.drain()
		if a.stopping {
			ctx.Stop(ctx.Self())
		}
	}
}
