// Package actors runs a training step as messages between actors.
//
//	supervisor    spawns and supervises the others; the first failure stops
//	              the run in order and is its cause
//	scheduler     sends every stage its order for the step, adds up losses and
//	              gradient norms, decides the update, and what comes next:
//	              validation, a checkpoint, a pause, the end
//	stage r       holds rank r's chunks; runs its order, an action at a time,
//	              as soon as the action's input and a credit for its output exist
//	loader        sends tokens and targets to the stages that ask for them
//	checkpoint    gathers the stages' state and writes it, or has those in other processes
//	              write theirs where they see the run's folder
//	metrics       writes metrics.jsonl and publishes events
//
// # How a stage waits
//
// Inputs wait in a mailbox keyed (order, kind, chunk, microbatch), so a
// send needs no matching receive and nothing arrives in the wrong order. What is
// in flight on an edge is bounded by credits, which come from the table: see
// package scheduler. A stage never computes in Receive; its device reports
// completion as a message, and the goroutine that reports it also runs Receive:
// between two actions no goroutine is switched.
//
// # Steps that begin ahead
//
// The update needs every rank's norms, so a step ends when its last rank does. With
// Spec.PostValidate the scheduler sends the next order ahead of that, with the update
// that it predicts: nothing clipped, all figures finite. A stage that has reported applies
// this update speculatively, keeping copies of what it changes, and goes on with the next
// order. It stops before the first action that touches gradients: those are still the
// ended step's, until the scheduler's decision comes. If the prediction was right, the
// update is committed and the order goes on. If not, or if a pause, a stop or a checkpoint
// was asked for meanwhile, the order ahead is aborted: its microbatches are dropped, its
// messages released, a wrong update is rolled back and the right one made, and the step is
// ordered again when its time comes. So the results never depend on a prediction. Where
// more than half of the last were wrong, steps wait for the decision. All of this is in
// speculate.go.
//
// # Ownership
//
// An actor's state is its own: others learn of it by messages, and by the status cells.
// A message owns the tensor it carries, and whoever takes the message frees it.
// Nothing is copied between stages on one device. From one device to another a tensor
// goes in memory that the host can address: a stage whose memory it cannot copies at the
// end of the list that makes it, and at the head of the list that takes it. See
// edges.go.
//
// # Nothing waits silently
//
// Each actor keeps its state in a statusCell beside its mailbox: what it does, what it
// waits for, from whom, since when. Reading a cell changes nothing and needs no
// answer from the actor, so a wedged stage still answers. event.Status prints the
// cells, and Explain follows the waits to their root.
//
// Every message carries run, attempt and step; one of another attempt is dropped.
//
// # Beside the step
//
// A checkpoint: the stages copy their state to host memory outside of the collector's heap and continue, while
// the checkpoint actor writes the copies. Where there is no room for copies, and after the last step, the files are written
// from the tensors themselves and the next step waits (Spec.SaveInPlace).
//
// A copy of the weights for a program (weightcopy.go): the request reaches each stage after the update of the last step and
// before the decision about the next one. In between no weight changes, so all copies are of one step.
//
// Recording (record.go): when somebody watches, or with run.trace_every, orders ask for times. A stage puts each finished
// action into a log with room for its row. Anybody reads the log without a lock and without asking an actor.
//
// # In whose actor system
//
// A run's actors are in a system of its own, or in one that the caller has given
// (Spec.System), below a supervisor whose name has the attempt in it: any number of runs
// may be in one system, and each stops its own actors and nothing else.
//
// # How a run ends
//
// Whatever the reason (the last step, a request, a failure), the supervisor first
// tells the stages to halt: they start nothing more, and answer when their device
// is at rest. From then on nobody sends a tensor, and all actors stop behind what
// is in their mailboxes: tensors there are released, lines and events come out,
// and a checkpoint in progress is finished, unless stages in other processes still write
// it. A panic is its actor's failure; protoactor resumes the actor as a failed one, so
// that it can do its part of this, and stops one that panics again.
//
// Then the streams end, and after all of them their arenas are closed: what a stage holds,
// what a list that failed half-way left behind, and what lies in a mailbox that nobody
// reads goes back with the memory that it is in. So nothing has to be freed one by one,
// and after Wait no tensor of the run's is in use.
//
// The package must not know sockets, kernels, files or the terminal: those come in as functions
// and interfaces of Spec.
package actors
