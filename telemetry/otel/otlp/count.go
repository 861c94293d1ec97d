package otlp

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// count counts spans: the SDK silently drops spans for which its queue has no room.
type count struct {
	where string
	warn  func(string)

	ended, sent, failed atomic.Int64
	troubled, full      sync.Once
}

// trouble warns once that the collector is not reachable.
func (c *count) trouble(err error) {
	if err != nil {
		c.troubled.Do(func() {
			c.warn(fmt.Sprintf("OpenTelemetry: cannot send to %s: %v; training continues without it, and unsent spans and metrics are dropped",
				c.where,
				err))
		})
	}
}

// end counts a span that has ended. At most a full queue, a batch being filled and a batch being sent can wait.
func (c *count) end() {
	if waiting := c.ended.Add(1) - c.sent.Load() - c.failed.Load(); waiting > limitSpans+2*limitBatch {
		c.full.Do(func() {
			c.warn(fmt.Sprintf("OpenTelemetry: more than %d spans wait for %s, and further spans are dropped; record fewer steps (raise run.trace_every)", limitSpans, c.where))
		})
	}
}

// lost returns the number of ended spans that were not sent. It is final when the providers are closed.
func (c *count) lost() int64 { return c.ended.Load() - c.sent.Load() }

// close warns about spans that were not sent.
func (c *count) close() {
	if lost := c.lost(); lost > 0 {
		c.warn(fmt.Sprintf("OpenTelemetry: %d of %d spans did not reach %s", lost, c.ended.Load(), c.where))
	}
}

// spanCounter counts the spans that an exporter sends. It returns no errors, since its caller would only print them.
type spanCounter struct {
	sdktrace.SpanExporter
	count *count
}

func (s *spanCounter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := s.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		s.count.failed.Add(int64(len(spans)))
		s.count.trouble(err)
		return nil
	}
	s.count.sent.Add(int64(len(spans)))
	return nil
}

// endCounter counts the spans that end.
type endCounter struct {
	sdktrace.SpanProcessor
	count *count
}

func (e *endCounter) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		e.count.end()
	}
	e.SpanProcessor.OnEnd(s)
}

// metricCounter turns the errors of an exporter into a warning.
type metricCounter struct {
	sdkmetric.Exporter
	count *count
}

func (m *metricCounter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	m.count.trouble(m.Exporter.Export(ctx, data))
	return nil
}
