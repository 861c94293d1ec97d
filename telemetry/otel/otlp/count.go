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

// count keeps the account of spans: the SDK drops those for which its queue has no room, and tells
// nobody.
type count struct {
	where string
	warn  func(string)

	ended, sent, failed atomic.Int64
	troubled, full      sync.Once
}

// trouble warns, once, that the collector can't be told.
func (c *count) trouble(err error) {
	if err != nil {
		c.troubled.Do(func() {
			c.warn(fmt.Sprintf("OpenTelemetry: %s takes nothing at the moment: %v; training goes on, and what does not get there is lost", c.where,
				err))
		})
	}
}

// end counts a span that has ended. More can't wait than the queue, a batch that is being filled
// and one that is being sent have room for.
func (c *count) end() {
	if waiting := c.ended.Add(1) - c.sent.Load() - c.failed.Load(); waiting > limitSpans+2*limitBatch {
		c.full.Do(func() {
			c.warn(fmt.Sprintf("OpenTelemetry: more than %d spans wait to be sent to %s, and others are dropped; record fewer steps (run.trace_every)", limitSpans, c.where))
		})
	}
}

// Lost is how many spans have not come to the collector: of those that have ended, all that were
// not sent. It is final when the providers are closed.
func (c *count) lost() int64 { return c.ended.Load() - c.sent.Load() }

// close tells what was lost.
func (c *count) close() {
	if lost := c.lost(); lost > 0 {
		c.warn(fmt.Sprintf("OpenTelemetry: %d of %d spans have not come to %s", lost, c.ended.Load(), c.where))
	}
}

// spanCounter counts what an exporter sends. Errors end here: who calls it would only print them.
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

// endCounter counts spans that end.
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

// metricCounter lets no error of an exporter out but as a warning.
type metricCounter struct {
	sdkmetric.Exporter
	count *count
}

func (m *metricCounter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	m.count.trouble(m.Exporter.Export(ctx, data))
	return nil
}
