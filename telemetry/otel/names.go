package otel

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-ml/troupe/scheduler"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/troupe-ml/troupe"

// Attributes of spans and metrics.
const (
	keyRun        = attribute.Key("engine.run")
	keyStep       = attribute.Key("engine.step")
	keyRank       = attribute.Key("engine.rank")
	keyStage      = attribute.Key("engine.stage")
	keyChunk      = attribute.Key("engine.chunk")
	keyMicrobatch = attribute.Key("engine.microbatch")
	keyAction     = attribute.Key("engine.action")
	keyHost       = attribute.Key("host.name")
	keyWithin     = attribute.Key("engine.clock.uncertainty_ms")
	keyTokens     = attribute.Key("engine.tokens")
	keyIdeal      = attribute.Key("engine.bubble_ideal_ratio")
	keySkipped    = attribute.Key("engine.skipped")
	keyFolder     = attribute.Key("engine.checkpoint.folder")
	keyBest       = attribute.Key("engine.checkpoint.best")
	keyWeights    = attribute.Key("engine.checkpoint.weights")
	keyRestart    = attribute.Key("engine.restart")
	keyMost       = attribute.Key("engine.restarts_max")
	keyWaits      = attribute.Key("engine.waits")
	keyName       = attribute.Key("engine.metric")
)

// passes are the names of the spans of actions.
var passes = map[scheduler.Type]string{scheduler.F: "forward", scheduler.B: "backward", scheduler.I: "input_gradient",
	scheduler.W: "weight_gradient"}

// exchanges are the names of the spans of exchanges of tokens, which are children of those of their actions.
var exchanges = map[scheduler.Type]string{scheduler.FD: "dispatch", scheduler.FC: "combine", scheduler.BD: "dispatch",
	scheduler.BC: "combine"}

// limitMetrics bounds the metrics of a step that a model's own layers report.
const limitMetrics = 64
