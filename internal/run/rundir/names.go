package rundir

import (
	"encoding/hex"
	"errors"
	"strings"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Names in a run's folder, and in a checkpoint.
const (
	ConfigFile    = "config.toml"
	MetricsFile   = "metrics.jsonl"
	TraceFile     = "trace.jsonl"   // the traced steps, one a line
	EventsFile    = "events.jsonl"  // what happened, one a line
	StatsFile     = "stats.jsonl"   // norms of layers and memory, every run.stats_every steps
	SamplesFile   = "samples.jsonl" // what the model wrote at each validation
	ChangesFile   = "changes.jsonl" // the journal of requested changes, one a line
	TrainerFile   = "trainer.json"
	ModelFile     = "config.json"
	TokensFile    = "tokenizer.json"
	AdapterFile   = "adapter.json"   // of a run or a checkpoint without the frozen weights: see Adapted
	SocketFile    = ".socket"        // at which the run listens: see package control
	TokenDir      = "tokens"         // folder of the run's texts as token ids
	TokenSuffix   = ".ids"           // of the files in it, ids of a whole text
	LogSuffix     = ".log"           // ids of a stream, as far as it was read
	IndexSuffix   = ".index"         // the documents in them
	ReferenceFile = "reference.json" // log-probabilities of a reference model: see Reference
	// TeacherFile describes TeacherTokensFile, which has a teacher's tokens: see Teacher.
	TeacherFile       = "teacher.json"
	TeacherTokensFile = "teacher.bin"
	ProbePrefix       = folder.TmpPrefix + "probe-" // of files by which workers show that they see the folder
)

// IsTokenFile reports whether a file in TokenDir is one of token ids, whole or not finished.
func IsTokenFile(name string) bool {
	for _, suffix := range []string{TokenSuffix, LogSuffix, IndexSuffix} {
		if hexa, ok := strings.CutSuffix(strings.TrimPrefix(name, folder.TmpPrefix), suffix); ok {
			_, err := hex.DecodeString(hexa)
			return err == nil && len(hexa) == 64
		}
	}
	return false
}

// ErrFolder: the folder cannot be used for this run.
var ErrFolder = errors.New("output folder")
