package otel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

// instruments are the metrics of a run.
type instruments struct {
	of   metric.MeasurementOption // the run
	run  attribute.KeyValue
	errs []error

	// by index of telemetry.Figures; nil: a histogram reports the metric
	figures                                                             []func(v float64)
	duration, saving                                                    metric.Float64Histogram
	ideal, figure, value, set                                           metric.Float64Gauge
	at                                                                  metric.Int64Gauge
	steps, skipped, tokens, checkpoints, restarts, stalls, replacements metric.Int64Counter
}

func newInstruments(m metric.Meter, run attribute.KeyValue) (*instruments, error) {
	i := &instruments{run: run, of: metric.WithAttributeSet(attribute.NewSet(run))}
	seconds := metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250,
		600, 1800, 3600)
	histogram := func(name, what string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithDescription(what), metric.WithUnit("s"), seconds)
		i.errs = append(i.errs, err)
		return h
	}
	gauge := func(name, unit, what string) metric.Float64Gauge {
		g, err := m.Float64Gauge(name, metric.WithDescription(what), metric.WithUnit(unit))
		i.errs = append(i.errs, err)
		return g
	}
	whole := func(name, unit, what string) metric.Int64Gauge {
		g, err := m.Int64Gauge(name, metric.WithDescription(what), metric.WithUnit(unit))
		i.errs = append(i.errs, err)
		return g
	}
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(what), metric.WithUnit(unit))
		i.errs = append(i.errs, err)
		return c
	}
	i.duration = histogram("engine.step.duration", "Duration of a step.")
	i.saving = histogram("engine.checkpoint.duration", "Duration of writing a checkpoint.")
	i.at = whole("engine.step", "{step}", "Last finished step.")
	i.ideal = gauge("engine.bubble_ideal_ratio", "1", "Bubble of the schedule's table if all actions of a kind took equally long.")
	i.figure = gauge("engine.metric", "1", "Metric that the model's layers report in addition to the loss, for the last step.")
	i.value = gauge("engine.validation_metric", "1", "Metric that the model's layers report in addition to the loss, for the last validation.")
	i.set = gauge("engine.validation_set_loss", "1", "Loss of a further validation set, in the last validation.")
	i.steps = counter("engine.steps", "{step}", "Finished steps.")
	i.skipped = counter("engine.steps_skipped", "{step}",
		"Steps whose update was skipped because the loss or the gradient norm was not finite.")
	i.tokens = counter("engine.tokens", "{token}", "Tokens of finished steps, or samples if the data is not text.")
	i.checkpoints = counter("engine.checkpoints", "{checkpoint}", "Number of checkpoints written.")
	i.restarts = counter("engine.restarts", "{restart}", "Restarts from the last checkpoint after a process failed.")
	i.replacements = counter("engine.replacements", "{replacement}",
		"Failed processes whose ranks another process took over, without a step repeated.")
	i.stalls = counter("engine.stalls", "{stall}", "Stalls: times that the run made no progress for run.stall_after_s.")
	for _, f := range telemetry.Figures {
		name, unit := "engine."+f.Metric, cmp.Or(units[f.Unit], "{"+strings.TrimSuffix(string(f.Unit), "s")+"}")
		switch {
		case f.Metric == "":
			i.figures = append(i.figures, nil)
		case f.Whole():
			g := whole(name, unit, f.Help)
			i.figures = append(i.figures, func(v float64) { g.Record(context.Background(), int64(v), i.of) })
		default:
			g := gauge(name, unit, f.Help)
			i.figures = append(i.figures, func(v float64) { g.Record(context.Background(), f.Scaled(v), i.of) })
		}
	}
	return i, errors.Join(i.errs...)
}

// units are OpenTelemetry's units of the figures. Units that count things are in braces.
var units = map[telemetry.Unit]string{telemetry.Number: "1", telemetry.Percent: "1", telemetry.TokensPerSecond: "{token}/s",
	telemetry.Milliseconds: "ms", telemetry.Bytes: "By"}

// step records a step, and the steps and tokens to add to the counters.
func (i *instruments) step(e troupe.StepEvent, steps, tokens int64) {
	ctx := context.Background()
	for k, tell := range i.figures {
		if v := telemetry.Figures[k].Get(&e.Record); v != nil && tell != nil {
			tell(*v)
		}
	}
	if e.BubblePct != nil {
		i.ideal.Record(ctx, e.IdealBubblePct/100, i.of)
	}
	i.named(i.figure, e.Metrics)
	i.named(i.value, e.ValMetrics)
	i.named(i.set, e.ValLosses)
	i.at.Record(ctx, int64(e.Step), i.of)
	if e.Step == 0 {
		return // the validation before training
	}
	if e.StepMS != nil {
		i.duration.Record(ctx, *e.StepMS/1e3, i.of)
	}
	i.steps.Add(ctx, steps, i.of)
	i.tokens.Add(ctx, tokens, i.of)
	if e.Skipped {
		i.skipped.Add(ctx, 1, i.of)
	}
}

func (i *instruments) named(g metric.Float64Gauge, figures map[string]float64) {
	names := slices.Sorted(maps.Keys(figures))
	for _, name := range names[:min(len(names), limitMetrics)] {
		g.Record(context.Background(), figures[name], metric.WithAttributes(i.run, keyName.String(name)))
	}
}

func (i *instruments) checkpoint(e troupe.CheckpointEvent) {
	i.checkpoints.Add(context.Background(), 1, i.of)
	i.saving.Record(context.Background(), e.Took.Seconds(), i.of)
}

func (i *instruments) replacement() { i.replacements.Add(context.Background(), 1, i.of) }
func (i *instruments) restart()     { i.restarts.Add(context.Background(), 1, i.of) }
func (i *instruments) stall()       { i.stalls.Add(context.Background(), 1, i.of) }
