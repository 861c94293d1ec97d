package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options configure providers.
type Options struct {
	Endpoint    string               // base URL of the collector; "": from the environment
	Attributes  []attribute.KeyValue // attributes of the resource; those of the environment take precedence
	Environment Environment
	// NoSecrets keeps the environment's headers and client certificate from an endpoint that another user chose.
	NoSecrets bool
	// Warn is called once if the collector is not reachable, and by Close with the number of unsent spans; nil: no warnings.
	Warn func(text string)
}

// Providers are the SDK's providers of traces and metrics.
type Providers struct {
	traces  *sdktrace.TracerProvider // nil: spans are not sent
	metrics *sdkmetric.MeterProvider // nil: metrics are not sent
	spans   sdktrace.SpanExporter    // exporter of traces
	count   *count
	ending  time.Duration // time that Close waits
}

// ErrEndpoint means that an endpoint is not a valid URL.
var ErrEndpoint = errors.New("invalid endpoint of a collector")

// Open returns providers. It does not connect to the collector yet. It replaces the process's handler of
// OpenTelemetry's own errors, which become warnings.
func Open(ctx context.Context, o Options) (*Providers, error) {
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	p := &Providers{ending: closeTime, count: &count{where: o.where(), warn: o.Warn}}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.count.trouble(err) }))
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(o.Attributes...), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OpenTelemetry: create the resource: %w", err)
	}
	if v := o.Environment.get("OTEL_EXPORTER_OTLP_PROTOCOL"); v != "" && v != "http/protobuf" {
		o.Warn(fmt.Sprintf("OpenTelemetry: OTEL_EXPORTER_OTLP_PROTOCOL = %.40q is not supported; using http/protobuf, which collectors usually serve on port 4318", v))
	}
	traces, metrics := wants(o.Endpoint, o.Environment)
	if traces {
		if err := p.sendTraces(ctx, &o, res); err != nil {
			return nil, err
		}
	}
	if metrics {
		if err := p.sendMetrics(ctx, &o, res); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// encrypted reports whether the endpoint uses TLS.
func (o *Options) encrypted() bool { return strings.HasPrefix(strings.ToLower(o.Endpoint), "https:") }

// where names the collector for people.
func (o *Options) where() string {
	if o.Endpoint != "" {
		return o.Endpoint
	}
	return "OTEL_EXPORTER_OTLP_ENDPOINT"
}

func (p *Providers) sendTraces(ctx context.Context, o *Options, res *resource.Resource) error {
	options := []otlptracehttp.Option{otlptracehttp.WithTimeout(sendTime),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second,
			MaxElapsedTime: retryTime})}
	if o.NoSecrets {
		options = append(options, otlptracehttp.WithHeaders(map[string]string{}))
		if o.encrypted() {
			// no client certificate
			options = append(options, otlptracehttp.WithTLSClientConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
		}
	}
	if o.Endpoint != "" {
		at, err := signal(o.Endpoint, "v1/traces")
		if err != nil {
			return err
		}
		options = append(options, otlptracehttp.WithEndpointURL(at))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return fmt.Errorf("OpenTelemetry: create the exporter of spans: %w", err)
	}
	p.spans = exporter
	batches := sdktrace.NewBatchSpanProcessor(&spanCounter{exporter, p.count}, sdktrace.WithMaxQueueSize(limitSpans),
		sdktrace.WithMaxExportBatchSize(limitBatch),
		sdktrace.WithBatchTimeout(batchTime), sdktrace.WithExportTimeout(sendTime+retryTime))
	p.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSpanProcessor(&endCounter{batches, p.count}))
	return nil
}

func (p *Providers) sendMetrics(ctx context.Context, o *Options, res *resource.Resource) error {
	options := []otlpmetrichttp.Option{otlpmetrichttp.WithTimeout(sendTime),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second,
			MaxElapsedTime: sendTime})}
	if o.NoSecrets {
		options = append(options, otlpmetrichttp.WithHeaders(map[string]string{}))
		if o.encrypted() {
			// no client certificate
			options = append(options, otlpmetrichttp.WithTLSClientConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
		}
	}
	if o.Endpoint != "" {
		at, err := signal(o.Endpoint, "v1/metrics")
		if err != nil {
			return err
		}
		options = append(options, otlpmetrichttp.WithEndpointURL(at))
	}
	exporter, err := otlpmetrichttp.New(ctx, options...)
	if err != nil {
		return fmt.Errorf("OpenTelemetry: create the exporter of metrics: %w", err)
	}
	reader := sdkmetric.NewPeriodicReader(&metricCounter{exporter, p.count}, sdkmetric.WithInterval(metricsTime),
		sdkmetric.WithTimeout(sendTime))
	p.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(reader))
	return nil
}

// signal returns the URL of a signal below the base URL.
func signal(endpoint, path string) (string, error) {
	base, err := url.Parse(endpoint)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return "", fmt.Errorf("%w: %q; use a URL such as http://localhost:4318", ErrEndpoint, endpoint)
	}
	return base.JoinPath(path).String(), nil
}

// Tracer returns the provider of tracers; nil: spans are not sent.
func (p *Providers) Tracer() trace.TracerProvider {
	if p.traces == nil {
		return nil
	}
	return p.traces
}

// Meter returns the provider of meters; nil: metrics are not sent.
func (p *Providers) Meter() metric.MeterProvider {
	if p.metrics == nil {
		return nil
	}
	return p.metrics
}

// Close sends the waiting data, for a few seconds at most, and warns about spans that were not sent.
func (p *Providers) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), p.ending)
	defer cancel()
	if p.metrics != nil {
		done := make(chan struct{})
		go func() { // ends with ctx
			defer close(done)
			p.count.trouble(p.metrics.Shutdown(ctx))
		}()
		defer func() { <-done }()
	}
	if p.traces != nil {
		_ = p.traces.ForceFlush(ctx) // unsent spans are counted
		ending, stop := context.WithTimeout(context.Background(), p.ending)
		defer stop()
		_ = p.spans.Shutdown(ending) // ends the batch that is being sent
		_ = p.traces.Shutdown(ending)
	}
	p.count.close()
}
