// Package troupe trains neural networks in pipeline stages that are actors.
//
// A configuration says everything; the same one gives the same losses, to the
// last bit, under every layout of the pipeline:
//
//	cfg, err := config.Load("config.toml", nil, os.LookupEnv)
//	run, err := troupe.Start(ctx, cfg, troupe.Options{})
//	for e := range run.Events() {
//		…
//	}
//	result, err := run.Wait()
//
// # The life of a run
//
// Start checks everything that can be checked, goes on from the newest checkpoint when the output
// folder holds one, and returns a Run that has begun. Where it fails, nothing is left behind:
// errors of the configuration and the data are *SetupError, and errors.Is tells ErrMemory,
// ErrOutput, ErrNoWorkers, and checkpoint's ErrLocked, ErrUnreadable and ErrNoSpace apart.
//
// A run needs nobody. It trains in goroutines of its own; events that nobody reads are dropped
// and counted. Pause, Resume, Checkpoint, Stop, Change and Status act on it from any goroutine,
// return at once, and do nothing to a run that has ended. A Change names the step that it takes
// effect at and is journalled in the folder before it does: a run that goes on from an older
// checkpoint makes it again. Snapshot gives the model of one step, to generate with, while
// training goes on.
//
// A run ends when its steps are made, or by Stop or the end of its context, at the end of the
// step in progress and with a checkpoint; by Kill, at once; or by the first failure of any of
// its actors, which is the error that Wait returns, an *actors.ActorError, with the last
// checkpoint whole. None of the actors is ever started again behind the run's back: whoever
// supervises training supervises the run, and starting it again goes on from its last checkpoint
// with the same bits. (Only the loss of another process, with Options.Hosts, is followed by
// another attempt by itself.) When Wait returns, no goroutine, file or memory of the run is
// left, but snapshots that are still held.
//
// Any number of runs may be in one process, each in a folder of its own: they share nothing but
// the machine's cores. The package keeps no state beside them; what a program registers
// (scheduler.Register, stages.RegisterLayer and others) is registered before the first run
// begins.
//
// # Among other actors
//
// A service that has an actor system of its own gives it to the run, as Options.System, with
// actors that watch its events, Options.Watchers. Run.PID is the run's own actor there, to which
// others send a Change or a StatusRequest.
//
// # What was trained
//
// Evaluate, Predict and Generate use a checkpoint.
//
// The package knows files, folders and configurations, and puts the other
// packages together. It must not know the terminal: package cli does.
package troupe
