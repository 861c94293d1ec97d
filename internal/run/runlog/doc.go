// Package runlog writes what a run leaves in its folder beside checkpoints and metrics: what happened to it
// (events.jsonl), norms by layer (stats.jsonl), timed steps (trace.jsonl) and texts (samples.jsonl).
//
// It must not know how an attempt begins, nor who reads the files.
package runlog
