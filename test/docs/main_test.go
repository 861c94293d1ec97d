//go:build unix && !race

package docs

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/troupe-ml/troupe/cli"
	"github.com/troupe-ml/troupe/config"
)

// root is the repository, seen from the folder in which tests run.
const root = "../.."

// TestMain makes the test binary the program `engine` of the documents, too.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"engine": engine})
}

// short is how many steps a training makes at most. Shorter ones keep all their keys.
const short = 6

// engine is the real program. A training that a document starts gets fewer steps, so that the test is quick.
func engine() {
	os.Args = append(os.Args, shorter(os.Args[1:])...)
	cli.Main()
}

// shorter returns the flags that make a training short.
func shorter(args []string) (more []string) {
	if len(args) < 2 || args[0] != "run" {
		return nil
	}
	path, sets := "", []string(nil)
	for i := 1; i < len(args); i++ {
		switch {
		case args[i] == "--set" && i+1 < len(args):
			i++
			sets = append(sets, args[i])
		case strings.HasSuffix(args[i], ".toml"):
			path = args[i]
		}
	}
	cfg, err := config.Load(path, sets, os.LookupEnv)
	if err != nil || cfg.Run.Steps <= short {
		return nil // the program reports errors
	}
	atMost := func(key string, value, limit int) {
		if value > limit {
			more = append(more, "--set", key+"="+strconv.Itoa(limit))
		}
	}
	steps := min(1+int(math.Ceil(float64(cfg.Run.Steps)/400)), short) // longer runs stay longer
	atMost("run.steps", cfg.Run.Steps, steps)
	atMost("run.eval_every", cfg.Run.EvalEvery, 2)
	atMost("run.eval_batches", cfg.Run.EvalBatches, 1)
	atMost("run.checkpoint_every", cfg.Run.CheckpointEvery, 2)
	atMost("run.log_every", cfg.Run.LogEvery, 1)
	atMost("run.trace_every", cfg.Run.TraceEvery, 2)
	atMost("run.stats_every", cfg.Run.StatsEvery, 2)
	atMost("optimizer.warmup_steps", cfg.Optimizer.WarmupSteps, 1)
	atMost("optimizer.decay_steps", cfg.Optimizer.DecaySteps, 1)
	return more
}
