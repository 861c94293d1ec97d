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
	w.awaitSaved()
	for said := false; ; said = true {
		w.mu.Lock()
		busy, saved := len(w.parts) > 0 || w.kept != nil, w.savedOf()
		w.mu.Unlock()
		if !busy && idle.IsZero() {
			idle = time.Now()
		}
		switch {
		case !busy && said && len(saved) > 0:
			for _, s := range saved {
				w.log.Info(fmt.Sprintf("worker %s leaves: checkpoint step %d written, no step lost", w.cfg.Name, s.step), "run", s.run)
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

// awaitSaved notes the runs that have ranks here: their checkpoints count.
func (w *membership) awaitSaved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved = make(map[uuid.UUID]*int64)
	for _, p := range w.parts {
		w.saved[p.run] = nil
	}
	if w.kept != nil {
		w.saved[w.kept.p.run] = nil
	}
}

// savedRun is a run that continues elsewhere from the checkpoint of a step.
type savedRun struct {
	run  uuid.UUID
	step int64
}

// savedOf returns the runs of awaitSaved with a checkpoint since then. w.mu is held.
func (w *membership) savedOf() (all []savedRun) {
	for run, step := range w.saved {
		if step != nil {
			all = append(all, savedRun{run, *step})
		}
	}
	slices.SortFunc(all, func(a, b savedRun) int { return bytes.Compare(a.run[:], b.run[:]) })
	return all
}

// left says that the worker leaves although it has ranks.
func (w *membership) left(why string) {
	w.log.Warn(fmt.Sprintf("worker %s leaves: %s; unless others have its ranks' state, from replicas or shadows, its run repeats the "+
		"steps after its last checkpoint", w.cfg.Name, why))
}
