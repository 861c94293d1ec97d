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

// The metrics of a Collector except its histograms.
var (
	descInfo    = desc("run_info", "Description of the run; always 1.", "id", "family", "schedule", "device", "kernels")
	descState   = desc("run_state", "1 for the state of the run: running, paused, done, stopped or failed.", "state")
	descPaused  = desc("paused", "1 if the run is paused, else 0.")
	descStages  = desc("stages", "Number of pipeline stages.")
	descRanks   = desc("ranks", "Number of ranks.")
	descParams  = desc("parameters", "Number of the model's parameters.")
	descPlanned = desc("steps_planned", "Last step of the run (run.steps).")
	descStep    = desc("step", "Last finished step.")

	descSteps   = desc("steps_total", "Finished steps since this process started the run.")
	descSkipped = desc("steps_skipped_total", "Steps whose update was skipped because the loss or the gradient norm was not finite.")
	descTokens  = desc("tokens_total",
		"Tokens of finished steps since this process started the run, or samples if the data is not text.")

	descMetric = desc("metric", "Metric that the model's layers report in addition to the loss, for the last step.", "name")
	descValues = desc("validation_metric", "Metric that the model's layers report in addition to the loss, for the last validation.", "name")
	descSets   = desc("validation_set_loss", "Loss of a further validation set, in the last validation.", "name")
	descIdeal  = desc("bubble_ideal_ratio", "Bubble of the schedule's table if all actions of a kind took equally long.")

	descRestarts    = desc("restarts_total", "Restarts from the last checkpoint after a process failed.")
	descReplaced    = desc("replacements_total", "Failed processes whose ranks another process took over, without a step repeated.")
	descStalls      = desc("stalls_total", "Stalls: times that the run made no progress for run.stall_after_s.")
	descWarnings    = desc("warnings_total", "Number of warnings.")
	descCheckpoints = desc("checkpoints_total", "Number of checkpoints written.")
	descSaved       = desc("last_checkpoint_step", "Step of the last checkpoint.")
	descSavedAt     = desc("last_checkpoint_timestamp_seconds", "Unix time of the last checkpoint, in seconds.")
	descSteppedAt   = desc("last_step_timestamp_seconds", "Unix time of the end of the last step, in seconds.")

	descRankInfo = desc("rank_info", "Name of a rank and host of its process, empty for the run's own process; always 1.", "rank",
		"name", "host")
	descRankState = desc("rank_state", "1 for the current state of a rank.", "rank", "state")
	descRankWait  = desc("rank_wait_seconds", "Seconds that a rank has waited so far, by what it waits for and from which rank or actor.",
		"rank", "for",
		"from")
	descRankMemory = desc("rank_memory_bytes", "Peak tensor memory of a rank.", "rank")
	descRankBubble = desc("rank_bubble_ratio", "Share of the last recorded step in which a rank ran no action.", "rank")
)

// descFigures are the descriptions of telemetry.Figures, by index; nil: a histogram reports the metric.
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
	descValues, descSets, descIdeal,
	descRestarts, descReplaced,
	descStalls, descWarnings, descCheckpoints, descSaved, descSavedAt, descSteppedAt, descRankInfo, descRankState, descRankWait,
	descRankMemory, descRankBubble)

// secondsBounds are the buckets of the histograms of durations, from a millisecond to an hour. Scrapers that ask for
// them get native histograms instead.
var secondsBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600, 1800, 3600}

func newHistogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: secondsBounds,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160}, []string{"run"})
}
