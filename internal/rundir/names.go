package rundir

import (
	"errors"

	"github.com/troupe-ml/troupe/internal/folder"
)

// Names in a run's folder, and in a checkpoint.
const (
	ConfigFile  = "config.toml"
	MetricsFile = "metrics.jsonl"
	TraceFile   = "trace.jsonl"   // the traced steps, one a line
	ChangesFile = "changes.jsonl" // the journal of changes that were asked for, one a line
	TrainerFile = "trainer.json"
	ModelFile   = "config.json"
	TokensFile  = "tokenizer.json"
	ProbePrefix = folder.TmpPrefix + "probe-" // of files by which workers show that they see the folder
)

// ErrFolder: the folder cannot be used for this run.
var ErrFolder = errors.New("output folder")
