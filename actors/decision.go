package actors

import (
	"math"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// decide sums up the step and sends the update. The squared norms are added in the model's order of
// parameters, only here, so the sum is the same in every layout.
func (a *schedulerActor) decide(ctx actor.Context) {
	wall, spent := time.Since(a.began), sysinfo.CPUTime()-a.spent
	var sum float64
	for _, n := range a.norms {
		sum += n
	}
	loss := a.losses.Loss()
	a.targets = a.losses.Targets()
	final := stages.LossScale(a.targets)
	norm := math.Sqrt(sum) * final
	if a.logs {
		a.logged = newNorms(a.state.Step+1, a.spec.slots(), a.norms, a.weights, final)
	}
	a.state.Step++
	step := a.state.Step
	rate := a.rate(step)
	m := &Apply{Header: a.header(), Skip: !finite(norm) || !finite(loss)}
	if m.Skip {
		a.state.SkippedInARow++
		a.saveMissed = a.saveMissed || a.savesAt(step)
	} else {
		a.state.Updates++
		a.state.SkippedInARow = 0
		scale := final
		if a.spec.ClipNorm > 0 && norm > a.spec.ClipNorm {
			scale *= a.spec.ClipNorm / norm
		}
		m.Update = stages.Update{Count: int(a.state.Updates), LR: rate, GradScale: scale}
	}
	next, how := a.postValidate(m)
	a.target = Target{Step: step, Skip: m.Skip, Kept: m.Kept, Update: m.Update}
	for _, pid := range a.peers.Stages {
		ctx.Send(pid, m)
	}
	a.applied.reset()
	tokens := a.spec.stepTokens(step)
	a.state.Tokens += tokens
	ms := float64(wall) / float64(time.Millisecond)
	perSecond := float64(tokens) / wall.Seconds()
	var peak *float64
	if a.spec.PeakTokensPerS > 0 {
		a.fastest = max(a.fastest, perSecond) // a step faster than the measured peak shows that the measurement was too low
		pct := 100 * perSecond / max(a.spec.PeakTokensPerS, a.fastest)
		peak = &pct
	}
	var cores *float64
	if spent > 0 && a.spec.Hosts == nil { // unknown for other processes
		n := spent.Seconds() / wall.Seconds()
		cores = &n
	}
	// A rank that ended the previous step early has already worked for this one before it started.
	// If it loses that lead again, its work exceeds the step's time.
	bubble := max(0, 100*(1-float64(a.busy)/(float64(a.spec.ranks())*float64(wall))))
	a.last = &event.StepEvent{Trace: a.trace, Clocks: a.clocks, Record: telemetry.Record{Step: int(step), Loss: &loss, GradNorm: &norm,
		LR: &rate, Tokens: a.state.Tokens, Epoch: a.spec.epochs(step), TimeMS: clock.Now().UnixMilli(),
		TokensPerS: &perSecond, StepMS: &ms, BubblePct: &bubble, PeakPct: peak, PeakMemBytes: sysinfo.PeakBytes(), CPUCores: cores,
		Skipped: m.Skip, Update: how}}
	if a.spec.Shadows != nil {
		ms := float64(time.Since(a.reported)) / float64(time.Millisecond)
		a.last.ShadowMS = &ms
	}
	a.last.Targets, a.last.FullPct = a.spec.fullness(tokens, a.targets)
	a.last.Metrics = routerMetrics(metricsOf(a.losses), a.routers)
	if mtp, ok := a.last.Metrics[stages.MTPLoss]; ok {
		a.last.MTPLoss = &mtp
		if delete(a.last.Metrics, stages.MTPLoss); len(a.last.Metrics) == 0 {
			a.last.Metrics = nil
		}
	}
	if next != nil {
		a.writeRecord(ctx)
		a.begin(ctx, next)
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// metrics returns the metrics that the layers report besides the loss; nil: none.
func metricsOf(losses *stages.Accumulator) map[string]float64 {
	var values map[string]float64
	for _, m := range losses.Metrics() {
		if values == nil {
			values = make(map[string]float64)
		}
		values[m.Name] = m.Value()
	}
	return values
}
