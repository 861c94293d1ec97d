// Package otel tells OpenTelemetry of a run: a step is a span, and where it was recorded its
// actions are the children, of all ranks and hosts, by this process's clock. Checkpoints,
// restarts, stalls and pauses are spans of their own, a validation is an event of its step. The
// figures of steps are metrics.
//
// Each step is the root of a trace: a run of weeks in one trace would be one that nobody can
// open. The run is in the resource of the providers, which are the caller's; package otlp makes
// some that send to a collector.
//
// The package must never know the SDK, an exporter, a network or the command line.
package otel
