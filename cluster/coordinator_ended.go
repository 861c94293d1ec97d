package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
)

// endState is the state of a run that has ended.
func endState(res troupe.Result, err error) wire.RunSummary_State {
	switch {
	case err != nil:
		return wire.RunSummary_FAILED
	case res.Stopped:
		return wire.RunSummary_STOPPED
	}
	return wire.RunSummary_DONE
}

// asEnded describes a run that ends now for the journal.
func (r *run) asEnded(res troupe.Result, err error) journal.Ended {
	s := r.summaryAt(0) // runs.mu is held
	s.State, s.EndedNs, s.Waiting = endState(res, err), clock.Now().UnixNano(), ""
	if err != nil {
		s.Error = words.Cut(err.Error(), apiwire.LimitErrorBytes)
	}
	if res.Dir != "" {
		s.Dir = words.Cut(res.Dir, apiwire.LimitErrorBytes)
	}
	if res.Step > 0 {
		s.Step = int64(res.Step)
	}
	r.mu.Lock()
	info := r.info.GetInfo()
	r.mu.Unlock()
	return journal.Ended{UUID: r.ids()[1], Info: info, LogEvery: r.cfg.Run.LogEvery, Summary: s, End: apiwire.PackEnd(res, err)}
}

// listEnded lists the last runs that ended under earlier coordinators of the folder.
func (s *runs) listEnded() {
	going := s.journal.Entries()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.journal.Ended() {
		// A coordinator that failed while a run ended has it in both lists, and the run resumes.
		if !slices.ContainsFunc(going, func(g journal.Entry) bool { return g.ID == e.Summary.GetId() }) {
			s.all = append(s.all, s.c.endedRun(e))
		}
	}
}

// endedRun is a run of the journal that has ended.
func (c *Coordinator) endedRun(e journal.Ended) *run {
	m := e.Summary
	r := &run{c: c, forgotten: true, id: m.GetId(), name: m.GetName(), by: m.GetSubmittedBy(), cfg: new(config.Config),
		done:      make(chan struct{}),
		followers: make(map[*follower]struct{}), submitted: time.Unix(0, m.GetSubmittedNs()), ended: time.Unix(0, m.GetEndedNs()),
		state: m.GetState(), step: m.GetStep(), loss: m.Loss, val: m.ValLoss, dir: m.GetDir(), restarts: m.GetRestarts(), lost: m.GetLostSteps(),
		workers: m.GetWorkers()}
	r.cfg.Run.Steps, r.cfg.Run.Out, r.cfg.Run.LogEvery = int(m.GetSteps()), m.GetOut(), e.LogEvery
	r.uuid, _ = uuid.Parse(e.UUID) // without it, logs show other ids
	if m.GetError() != "" {
		r.err = errors.New(m.GetError())
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.cancel()
	if e.Info != nil {
		r.info = &wire.RunEvent{Kind: &wire.RunEvent_Info{Info: e.Info}}
		r.publish(r.info)
	}
	r.publish(&wire.RunEvent{Kind: &wire.RunEvent_End{End: e.End}})
	close(r.done)
	return r
}
