package rundir

import "errors"

// Names in a run's folder, and in a checkpoint.
const (
	ConfigFile  = "config.toml"
	MetricsFile = "metrics.jsonl"
	TraceFile   = "trace.jsonl"   // the traced steps, one a line
	ChangesFile = "changes.jsonl" // the journal of changes that were asked for, one a line
	TrainerFile = "trainer.json"
	ModelFile   = "config.json"
	TokensFile  = "tokenizer.json"
)

// ErrFolder: the folder cannot be used for this run.
var ErrFolder = errors.New("output folder")
