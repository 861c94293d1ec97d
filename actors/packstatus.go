package actors

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// PackSnapshot encodes a snapshot for another process. wall returns what this process's clock shows
// at a time.
func PackSnapshot(s event.Snapshot, wall func(time.Time) time.Time) *wire.Snapshot {
	return &wire.Snapshot{Actor: s.Actor, Rank: int32(s.Rank), Step: s.Step, Phase: uint32(s.Phase), Doing: uint32(s.Doing),
		Action: packAction(s.Action),
		Wait:   uint32(s.Wait), Needs: packAction(s.Needs), From: s.From, Held: int32(s.Held), Need: int32(s.Need), Collective: s.Collective,
		SinceNs: wall(s.Since).UnixNano()}
}

// UnpackSnapshot decodes a snapshot from another process.
func UnpackSnapshot(w *wire.Snapshot) (event.Snapshot, error) {
	if max(w.GetAction().GetType(), w.GetNeeds().GetType()) > uint32(scheduler.B) || w.GetDoing() > uint32(event.Failing) ||
		w.GetWait() > uint32(event.WaitShadow) || w.GetPhase() > uint32(event.Eval) {
		return event.Snapshot{}, fmt.Errorf("%w: an impossible snapshot of %.100q: doing %d, waiting for %d", ErrMessage, w.GetActor(),
			w.GetDoing(),
			w.GetWait())
	}
	act := func(a *wire.Action) scheduler.Action {
		return scheduler.Action{Chunk: a.GetChunk(), Type: scheduler.Type(a.GetType()),
			Microbatch: a.GetMicrobatch()}
	}
	return event.Snapshot{Actor: cut(w.GetActor()), Rank: int(w.GetRank()), Step: w.GetStep(), Phase: event.Phase(w.GetPhase()),
		Doing: event.Doing(w.GetDoing()), Action: act(w.GetAction()),
		Wait: event.Wait(w.GetWait()), Needs: act(w.GetNeeds()), From: cut(w.GetFrom()), Held: int(w.GetHeld()), Need: int(w.GetNeed()),
		Collective: cut(w.GetCollective()), Since: time.Unix(0, w.GetSinceNs())}, nil
}
