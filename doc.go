// Package troupe trains neural networks in pipeline stages. Each stage is an actor.
//
// A configuration describes a run completely. With one configuration the losses are
// bit-identical under every layout of the pipeline:
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
// Start checks the configuration, the data and the output folder. If the folder has a checkpoint,
// the run resumes from it. Start returns when training has started. If it fails, it leaves nothing
// behind. Errors of the configuration and the data are *SetupError. Use errors.Is for ErrMemory,
// ErrOutput and ErrNoWorkers, and for ErrLocked, ErrUnreadable and ErrNoSpace of package checkpoint.
//
// A run trains in its own goroutines, and you need not read its events: events without a reader are
// dropped and counted. Pause, Resume, Checkpoint, Stop, Change and Status may be called from any
// goroutine. They return at once and do nothing after the run's end. A Change takes effect at a step.
// The run journals it in its folder first: a run that resumes from an older checkpoint repeats
// the change. Snapshot copies the weights of one step, to generate text while training continues.
//
// A run ends in one of these ways:
//
//   - It has made all its steps.
//   - Stop was called or the context ended. The run finishes the step and writes a checkpoint.
//   - Kill was called. The run ends at once.
//   - One of its actors failed. Wait returns the first failure, an *actors.ActorError. The last
//     checkpoint stays intact.
//
// The run does not restart a failed actor. The service that supervises training supervises the run:
// after a failure, call Start again. The run then resumes from its last checkpoint, with the same bits.
// There is one exception: with Options.Hosts, the run restarts automatically after another process
// fails. When Wait returns, the run has released its goroutines, files and memory, except for
// snapshots that are still open.
//
// A process may have any number of runs, each with its own output folder. They share only the cores
// of the machine. The package has no other state. Register schedules, layers and formats
// (scheduler.Register, stages.RegisterLayer and others) before the first run starts.
//
// # Among other actors
//
// A service with its own actor system passes it in Options.System, with the actors that receive
// events in Options.Watchers. Run.PID is the run's actor there: send it a Change or a StatusRequest.
//
// # Trained models
//
// Evaluate, Predict, Generate and Export use a checkpoint.
//
// The package puts the other packages together: files, folders and configurations. It must not know
// the terminal; package cli does.
package troupe
