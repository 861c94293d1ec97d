// Package otel reports a run to OpenTelemetry. A step is a span; if it was recorded, the actions of
// all ranks are its child spans, in times of this process's clock. Checkpoints, restarts, stalls and
// pauses are spans, and a validation is an event of its step's span. The metrics of steps are
// OpenTelemetry metrics.
//
// Each step is a trace of its own: no tool could open the trace of a run of weeks. The caller passes
// the providers and describes the run in their resource. Package otlp makes providers that send to a
// collector.
//
// The package must not depend on the SDK, an exporter, a network or the command line.
package otel
