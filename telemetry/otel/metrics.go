package otel

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-ml/troupe"
)

// instruments are the metrics of a run.
type instruments struct {
	of   metric.MeasurementOption // the run
	run  attribute.KeyValue
	errs []error

	duration, saving                                                            metric.Float64Histogram
	loss, mtpLoss, valLoss, norm, lr, speed, bubble, ideal, peak, figure, value metric.Float64Gauge
	memory, at                                                                  metric.Int64Gauge
	steps, skipped, tokens, checkpoints, restarts, stalls                       metric.Int64Counter
}

func newInstruments(m metric.Meter, run attribute.KeyValue) (*instruments, error) {
	i := &instruments{run: run, of: metric.WithAttributeSet(attribute.NewSet(run))}
	seconds := metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600, 1800, 3600)
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
	i.duration = histogram("engine.step.duration", "How long a step took.")
	i.saving = histogram("engine.checkpoint.duration", "How long writing a checkpoint took.")
	i.at = whole("engine.step", "{step}", "The step that has ended last.")
	i.loss = gauge("engine.loss", "1", "Loss of the last step: the mean over its target tokens.")
	i.mtpLoss = gauge("engine.mtp_loss", "1", "Loss of multi-token prediction of the last step.")
	i.valLoss = gauge("engine.validation_loss", "1", "Loss of the last validation.")
	i.norm = gauge("engine.gradient_norm", "1", "Norm of the whole gradient of the last step, before clipping.")
	i.lr = gauge("engine.learning_rate", "1", "Learning rate of the last step.")
	i.speed = gauge("engine.tokens_per_second", "{token}/s", "Tokens a second, of the last step.")
	i.bubble = gauge("engine.bubble_ratio", "1", "Share of the ranks' time without a running action, of the last step.")
	i.ideal = gauge("engine.bubble_ideal_ratio", "1", "The same of the schedule's table, if all actions of a kind took equally long.")
	i.peak = gauge("engine.peak_ratio", "1", "Operations that the model asks for in a second, as a share of the processor's peak, of the last step.")
	i.figure = gauge("engine.metric", "1", "What the model's layers report beside the loss, of the last step.")
	i.value = gauge("engine.validation_metric", "1", "What the model's layers report beside the loss, of the last validation.")
	i.memory = whole("engine.memory.peak", "By", "The most memory that the process has taken at a time.")
	i.steps = counter("engine.steps", "{step}", "Steps that have ended.")
	i.skipped = counter("engine.steps_skipped", "{step}", "Steps whose update was skipped, since a figure was not finite.")
	i.tokens = counter("engine.tokens", "{token}", "Tokens, or samples where the data are no text, of steps that have ended.")
	i.checkpoints = counter("engine.checkpoints", "{checkpoint}", "Checkpoints that were written.")
	i.restarts = counter("engine.restarts", "{restart}", "Restarts from the last checkpoint after a process was lost.")
	i.stalls = counter("engine.stalls", "{stall}", "Times that nothing had moved for run.stall_after_s.")
	return i, errors.Join(i.errs...)
}

// step tells of a step, and of how many steps and tokens there are more.
func (i *instruments) step(e troupe.StepEvent, steps, tokens int64) {
	ctx := context.Background()
	set := func(g metric.Float64Gauge, v *float64, scale float64) {
		if v != nil {
			g.Record(ctx, *v*scale, i.of)
		}
	}
	set(i.loss, e.Loss, 1)
	set(i.mtpLoss, e.MTPLoss, 1)
	set(i.valLoss, e.ValLoss, 1)
	set(i.norm, e.GradNorm, 1)
	set(i.lr, e.LR, 1)
	set(i.speed, e.TokensPerS, 1)
	set(i.bubble, e.BubblePct, 0.01)
	set(i.peak, e.PeakPct, 0.01)
	if e.BubblePct != nil {
		i.ideal.Record(ctx, e.IdealBubblePct/100, i.of)
	}
	if e.PeakMemBytes > 0 {
		i.memory.Record(ctx, e.PeakMemBytes, i.of)
	}
	i.named(i.figure, e.Metrics)
	i.named(i.value, e.ValMetrics)
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

func (i *instruments) restart() { i.restarts.Add(context.Background(), 1, i.of) }
func (i *instruments) stall()   { i.stalls.Add(context.Background(), 1, i.of) }
