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
// Start checks everything that can be checked, resumes when the output folder
// holds a checkpoint, and begins; errors of the configuration and the data are
// *SetupError. Pause, Resume, Checkpoint, Stop and Status act on a run from any
// goroutine. When the context ends the run stops at the end of its step, with a
// checkpoint.
//
// A service that has an actor system of its own gives it to the run, as Options.System.
//
// Evaluate and Generate use what was trained.
//
// The package knows files, folders and configurations, and puts the other
// packages together. It must not know the terminal: package cli does.
package troupe
