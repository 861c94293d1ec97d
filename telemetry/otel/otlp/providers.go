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

// Options say where to, and of what.
type Options struct {
	Endpoint    string               // base URL of the collector; "": as the environment says
	Attributes  []attribute.KeyValue // of the resource: what runs; the environment's come before them
	Environment Environment
	// NoSecrets: somebody else has chosen the endpoint, so that the environment's headers and client certificate don't go there.
	NoSecrets bool
	Warn      func(text string) // told once that the collector takes nothing, and in the end what was lost; nil: nobody is
}

// Providers are those of the SDK.
type Providers struct {
	traces  *sdktrace.TracerProvider // nil: spans are not sent
	metrics *sdkmetric.MeterProvider // nil: metrics are not
	spans   sdktrace.SpanExporter    // of traces
	count   *count
	ending  time.Duration // that Close waits
}

// ErrEndpoint: it is none that anything can be sent to.
var ErrEndpoint = errors.New("no endpoint of a collector")

// Open makes providers. Nothing is sent yet: whether there is a collector nobody asks. The process's
// handler of OpenTelemetry's own errors is replaced: they are warnings.
func Open(ctx context.Context, o Options) (*Providers, error) {
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	p := &Providers{ending: closeTime, count: &count{where: o.where(), warn: o.Warn}}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.count.trouble(err) }))
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(o.Attributes...), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OpenTelemetry's resource: %w", err)
	}
	if v := o.Environment.get("OTEL_EXPORTER_OTLP_PROTOCOL"); v != "" && v != "http/protobuf" {
		o.Warn(fmt.Sprintf("OpenTelemetry: OTEL_EXPORTER_OTLP_PROTOCOL is %.40q; only http/protobuf is spoken here, mostly at port 4318", v))
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

// encrypted reports whether the endpoint takes TLS.
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
			// without a certificate of this process
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
		return fmt.Errorf("OpenTelemetry's spans: %w", err)
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
			// without a certificate of this process
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
		return fmt.Errorf("OpenTelemetry's metrics: %w", err)
	}
	reader := sdkmetric.NewPeriodicReader(&metricCounter{exporter, p.count}, sdkmetric.WithInterval(metricsTime),
		sdkmetric.WithTimeout(sendTime))
	p.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(reader))
	return nil
}

// signal is where a signal goes: beneath the base, as of OTEL_EXPORTER_OTLP_ENDPOINT.
func signal(endpoint, path string) (string, error) {
	base, err := url.Parse(endpoint)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return "", fmt.Errorf("%w: %q; give a URL such as http://localhost:4318", ErrEndpoint, endpoint)
	}
	return base.JoinPath(path).String(), nil
}

// Tracer is the provider of tracers; nil: spans are not sent.
func (p *Providers) Tracer() trace.TracerProvider {
	if p.traces == nil {
		return nil
	}
	return p.traces
}

// Meter is the provider of meters; nil: metrics are not sent.
func (p *Providers) Meter() metric.MeterProvider {
	if p.metrics == nil {
		return nil
	}
	return p.metrics
}

// Close sends what waits, for a few seconds at most, and warns of what was lost.
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
		_ = p.traces.ForceFlush(ctx) // what is lost is counted
		ending, stop := context.WithTimeout(context.Background(), p.ending)
		defer stop()
		_ = p.spans.Shutdown(ending) // which ends what is being sent
		_ = p.traces.Shutdown(ending)
	}
	p.count.close()
}
