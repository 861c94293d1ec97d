// Package otlp makes providers of OpenTelemetry's SDK that send spans and metrics to a collector,
// using OTLP over HTTP.
//
// Sending never blocks the run: spans wait in a bounded queue and are sent in batches; spans that find
// no room are dropped and counted. An unreachable collector causes one warning. Close waits at most a
// few seconds for unsent data.
//
// The standard environment variables apply, such as OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and OTEL_TRACES_SAMPLER;
// OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER may be "none".
//
// The package links the SDK and its exporters, which include gRPC's code; so only package cli imports
// it. A service with its own providers passes them to package otel.
package otlp
