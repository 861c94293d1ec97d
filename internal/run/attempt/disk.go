package attempt

import (
	"fmt"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
)

// warnDisk warns if the checkpoints that the run will keep need much of the free space. The write of a checkpoint checks
// the space, too, but hours later.
func (a *Attempt) warnDisk() {
	free, err := a.output.FS.FreeBytes(".")
	if err != nil {
		return // the write of a checkpoint reports it
	}
	steps, err := a.output.Store.Steps()
	if err != nil {
		return
	}
	full, best := a.checkpointBytes()
	if text := diskNeed(a.cfg.Run, a.start.Step, len(steps), full, best, free); text != "" {
		a.env.Warn("%s", text)
	}
}

// checkpointBytes returns the size of a checkpoint, and that of the best weights.
func (a *Attempt) checkpointBytes() (full, best int64) {
	m := a.plan.Model()
	state := plan.Optimizer(a.cfg).StateBytes(m)
	all, trained := m.Parameters(), m.Trained()
	if m.Config.Adapter != nil {
		return 4*trained + state, 4 * trained
	}
	width := int64(4)
	if a.cfg.Device.DType == "bfloat16" {
		width = 2
	}
	return 4*all + state, width * all
}

// diskNeed says how much space the checkpoints of a run take after a step if that is more than half of the free
// space; "": it is not. have is the number of checkpoints that exist.
func diskNeed(run config.Run, step int64, have int, full, best, free int64) string {
	const share = 2
	if run.Keep == 0 || int64(run.Steps) <= step {
		return "" // the user keeps all, or nothing is left to do
	}
	ahead := 1 // the last one
	if run.CheckpointEvery > 0 {
		ahead = max(1, (run.Steps-int(step)+run.CheckpointEvery-1)/run.CheckpointEvery)
	}
	ahead = min(ahead, max(0, run.Keep-have)+1) // while one is written, the oldest is still there
	need, kept := int64(ahead)*full, fmt.Sprintf("run.keep = %d", run.Keep)
	switch run.Best {
	case config.BestWeights:
		need, kept = need+2*best, kept+" and the best weights"
	case config.BestFull:
		need, kept = need+full, kept+" and the best"
	}
	if need <= free/share {
		return ""
	}
	return fmt.Sprintf("each checkpoint takes %s; with %s they need %s more, and %s are free", words.Bytes(full), kept, words.Bytes(need),
		words.Bytes(free))
}
