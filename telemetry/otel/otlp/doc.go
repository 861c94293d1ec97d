// Package otlp makes the providers of OpenTelemetry's SDK that send spans and metrics to a
// collector, by OTLP over HTTP.
//
// What sends never holds up who is told of: spans wait in a queue with a bound, are sent in
// batches, and those for which there is no room are dropped and counted. A collector that is away
// costs a warning. Close waits for what is under way for a few seconds at most.
//
// The usual variables of the environment hold, as OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and
// OTEL_TRACES_SAMPLER do; OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER may be "none".
//
// The package links the SDK, its exporters and what they need, gRPC's code among it: only package cli
// imports it. A service that has providers gives them to package otel.
package otlp
