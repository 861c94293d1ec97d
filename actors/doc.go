// Package actors runs training steps as messages between actors.
//
//	supervisor    spawns and supervises the other actors; the first failure stops
//	              the run in order and is its cause
//	scheduler     sends every stage its order for the step, adds up losses and
//	              gradient norms, decides the update, and decides what comes next:
//	              validation, a checkpoint, a pause, the end
//	stage r       holds rank r's chunks; runs its order, an action at a time,
//	              as soon as the action's input and a credit for its output exist
//	loader        sends tokens and targets to the stages that request them
//	checkpoint    collects the stages' state and writes it; stages in other processes
//	              write theirs themselves if they see the run's folder
//	metrics       writes metrics.jsonl and publishes events
//
// # How a stage waits
//
// Inputs wait in a mailbox under the key (order, kind, chunk, microbatch). So a send needs no
// matching receive, and inputs may arrive in any order. Credits, which come from the table, limit
// what is in flight on an edge; see package scheduler. A stage never computes in Receive. Its
// device reports completion as a message, and the goroutine that reports it also runs Receive, so
// no goroutine is switched between two actions.
//
// # Steps that start ahead
//
// The update needs the norms of every rank, so a step ends when its last rank does. With
// Spec.PostValidate the scheduler sends the next order earlier, together with the update that it
// predicts: nothing clipped, and all numbers finite. A stage that has reported applies this update
// speculatively, keeps copies of what it changes, and continues with the next order. It stops
// before the first action that touches gradients: until the scheduler's decision arrives, those
// belong to the previous step.
//
// If the prediction was right, the update is committed and the order continues. Otherwise, or if a
// pause, a stop or a checkpoint was requested meanwhile, the order is aborted: its microbatches are
// dropped and its messages released. A wrong update is rolled back and the right one is applied.
// The step is ordered again when its time comes. So the results never depend on a prediction. If
// more than half of the last predictions were wrong, steps wait for the decision. The code is in
// speculate.go.
//
// # Ownership
//
// An actor owns its state: others learn of it through messages and status cells. A message owns the
// tensor that it carries, and the receiver frees it. Nothing is copied between stages on one
// device. From one device to another a tensor travels in memory that the host can address. A stage
// whose memory the host can't address copies it at the end of the list that makes it, and at the
// start of the list that takes it. See edges.go.
//
// # Nothing waits silently
//
// Each actor keeps its state in a statusCell beside its mailbox: what it does, what it waits for,
// from whom, and since when. Reading a cell changes nothing and needs no answer from the actor, so
// the status of a hung stage can be read, too. event.Status prints the cells, and Explain follows
// the waits to their root.
//
// Every message carries run, attempt and step; messages of another attempt are dropped.
//
// # Beside the step
//
// Checkpoints: the stages copy their state to host memory outside the garbage-collected heap and
// continue, while the checkpoint actor writes the copies. If there is no room for copies, and after
// the last step, the files are written from the tensors themselves and the next step waits
// (Spec.SaveInPlace).
//
// Copies of the weights for the program (weightcopy.go): the request reaches each stage after the
// update of the last step and before the decision about the next one. In between no weight changes,
// so all copies are of the same step.
//
// Recording (record.go): if an observer is connected, or with run.trace_every, orders request
// times. A stage adds each finished action to a log with room for its row. The log can be read
// without a lock and without asking an actor.
//
// # Actor systems
//
// A run's actors are in their own actor system or in the caller's (Spec.System), below a supervisor
// whose name contains the attempt. Any number of runs may share a system; each stops only its own
// actors.
//
// # How a run ends
//
// Whatever the reason (the last step, a request, a failure), the supervisor first tells the stages
// to halt: they start nothing more, and answer when their device is idle. From then on no tensor is
// sent, and all actors stop after processing their mailboxes. So tensors there are released, lines
// and events are written, and a checkpoint in progress is finished, unless stages in other
// processes still write it. A panic is a failure of its actor. protoactor resumes the actor as a
// failed one, so that it can take part in this, and stops an actor that panics again.
//
// Then the streams are closed, and after all of them their arenas. This frees all remaining memory:
// tensors that a stage holds, the remains of a failed list, and messages in a mailbox that is not
// read any more. So nothing has to be freed one by one, and after Wait no tensor of the run is in
// use.
//
// # Renewed attempts
//
// If the processes of some ranks are lost and Spec.Keep agrees, the other stages outlive the attempt: each becomes a Kept (adopt.go),
// in its process, and the outcome has a Carry with the scheduler's state (carry.go). The next attempt takes both. Each stage
// adopts the last decided step, the Target: it drops what was begun, or applies the update that has not reached it. A rank that was
// lost is built again, from the state of a rank with the same weights (rankstate.go), or from its shadow. A step is decided when all
// ranks have reported it, so no stage is further behind than that.
//
// The shadow of a rank is with the actor of another rank, in another process (Spec.Shadows, shadow.go): trained weights and optimizer state
// without layers, on a stream of its own. At the start the holder reads them from the rank. After the norms of a step the rank sends its
// gradients. The scheduler decides the step when every rank has reported it and every shadow has its gradients and has made the update
// before. The holder makes the update when it gets the decision. So a shadow is at the last decided step, or one before it with that
// step's gradients, and a Kept takes it to the next attempt.
//
// The package must not know sockets, kernels, files or the terminal: these come in as functions and
// interfaces of Spec.
package actors
