package prom

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/troupe-ml/troupe/telemetry"
)

const prefix = "engine_"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, append([]string{"run"}, labels...), nil)
}

// What a Collector shows beside its histograms.
var (
	descInfo    = desc("run_info", "What the run is; always 1.", "id", "family", "schedule", "device", "kernels")
	descState   = desc("run_state", "1 for what the run does: running, paused, done, stopped or failed.", "state")
	descPaused  = desc("paused", "Whether the run is paused at a step's end.")
	descStages  = desc("stages", "Stages of the pipeline.")
	descRanks   = desc("ranks", "Ranks of the run.")
	descParams  = desc("parameters", "Parameters of the model.")
	descPlanned = desc("steps_planned", "Step with which the run ends.")
	descStep    = desc("step", "The step that has ended last.")

	descSteps   = desc("steps_total", "Steps that have ended since this process began with the run.")
	descSkipped = desc("steps_skipped_total", "Steps whose update was skipped, since a figure was not finite.")
	descTokens  = desc("tokens_total",
		"Tokens, or samples where the data are no text, of steps that have ended since this process began with the run.")

	descMetric = desc("metric", "What the model's layers report beside the loss, of the last step.", "name")
	descValues = desc("validation_metric", "What the model's layers report beside the loss, of the last validation.", "name")
	descIdeal  = desc("bubble_ideal_ratio", "The same of the schedule's table, if all actions of a kind took equally long.")

	descRestarts    = desc("restarts_total", "Restarts from the last checkpoint after a process was lost.")
	descStalls      = desc("stalls_total", "Times that nothing had moved for run.stall_after_s.")
	descWarnings    = desc("warnings_total", "Warnings of the run.")
	descCheckpoints = desc("checkpoints_total", "Checkpoints that were written.")
	descSaved       = desc("last_checkpoint_step", "Step of the last checkpoint.")
	descSavedAt     = desc("last_checkpoint_timestamp_seconds", "When the last checkpoint was written, in seconds since 1970.")
	descSteppedAt   = desc("last_step_timestamp_seconds", "When the last step ended, in seconds since 1970.")

	descRankInfo = desc("rank_info", "What a rank is called, and the host of its process, empty for the run's own; always 1.", "rank",
		"name", "host")
	descRankState = desc("rank_state", "1 for what a rank does at the moment.", "rank", "state")
	descRankWait  = desc("rank_wait_seconds", "For how long a rank has waited, for what, and from which rank or actor.", "rank", "for",
		"from")
	descRankMemory = desc("rank_memory_bytes", "The most tensor memory that a rank has taken at a time.", "rank")
	descRankBubble = desc("rank_bubble_ratio", "Share of the last recorded step in which a rank ran no action.", "rank")
)

// descFigures are those of telemetry.Figures, by their place; nil: a histogram has the figure.
var descFigures = func() []*prometheus.Desc {
	all := make([]*prometheus.Desc, len(telemetry.Figures))
	for i, f := range telemetry.Figures {
		if f.Metric == "" {
			continue
		}
		name := strings.ReplaceAll(f.Metric, ".", "_")
		if f.Unit == telemetry.Bytes {
			name += "_bytes"
		}
		all[i] = desc(name, f.Help)
	}
	return all
}()

var descs = append(slices.DeleteFunc(slices.Clone(descFigures), func(d *prometheus.Desc) bool { return d == nil }),
	descInfo, descState, descPaused, descStages, descRanks, descParams, descPlanned, descStep, descSteps, descSkipped, descTokens, descMetric,
	descValues, descIdeal,
	descRestarts, descStalls, descWarnings, descCheckpoints, descSaved, descSavedAt, descSteppedAt, descRankInfo, descRankState, descRankWait,
	descRankMemory, descRankBubble)

// What takes time is shown as a histogram: its native form where it is asked for, else by bounds
// from a millisecond to an hour.
var secondsBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600, 1800, 3600}

func newHistogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: secondsBounds,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160}, []string{"run"})
}
