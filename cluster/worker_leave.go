package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// drain waits until the coordinator has released this worker's ranks, because its run has written a checkpoint and
// continues without it. It waits for up to the grace time, until AtOnce is closed, or until the coordinator is silent. If
// the whole cluster stops, the coordinator needs the workers for the runs' last checkpoints.
func (w *membership) drain(ctx context.Context) {
	if w.cfg.Grace < 0 {
		return
	}
	end := time.NewTimer(w.cfg.Grace)
	defer end.Stop()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	var idle time.Time // when the last of its stages had ended
	runs := w.runs()
	for said := false; ; said = true {
		w.mu.Lock()
		busy, saved := len(w.parts) > 0 || w.kept != nil, w.savedOf(runs)
		w.mu.Unlock()
		if !busy && idle.IsZero() {
			idle = time.Now()
		}
		switch {
		case !busy && said && len(saved) > 0:
			for _, step := range saved {
				w.log.Info(fmt.Sprintf("worker %s leaves: checkpoint step %d written, no step lost", w.cfg.Name, step))
			}
			return
		case !busy && said && time.Since(idle) < drainRelease: // the release, which names the checkpoint, comes after the stages' end
		case !busy:
			w.log.Info("worker " + w.cfg.Name + " leaves: it has no ranks")
			return
		case w.client.Quiet() > drainQuiet:
			w.left("the coordinator does not answer")
			return
		case !said:
			w.log.Info("worker "+w.cfg.Name+" was told to stop: it leaves when its run has replaced it or written a checkpoint", "limit_s", w.cfg.Grace.Seconds())
		}
		select {
		case <-tick.C:
		case <-end.C:
			w.left(fmt.Sprintf("its grace time of %g s is over", w.cfg.Grace.Seconds()))
			return
		case <-w.cfg.AtOnce:
			w.left("it was told to stop at once")
			return
		case <-ctx.Done():
			return
		}
	}
}

// runs returns the runs that have ranks here, and forgets the checkpoints of earlier ones.
func (w *membership) runs() (all []uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.saved)
	for _, p := range w.parts {
		all = append(all, p.run)
	}
	if w.kept != nil {
		all = append(all, w.kept.p.run)
	}
	slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(all) // attempts of one run may overlap
}

// savedOf returns the steps of the checkpoints from which runs continue elsewhere. w.mu is held.
func (w *membership) savedOf(runs []uuid.UUID) (steps []int64) {
	for _, run := range runs {
		if step, ok := w.saved[run]; ok {
			steps = append(steps, step)
		}
	}
	return steps
}

// left says that the worker leaves although it has ranks.
func (w *membership) left(why string) {
	w.log.Warn(fmt.Sprintf("worker %s leaves: %s; its run repeats the steps after its last checkpoint", w.cfg.Name, why))
}
