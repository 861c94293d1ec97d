package apiwire

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// PackStatus encodes what every actor is doing.
func PackStatus(s event.Status) *wire.RunStatusReply {
	w := &wire.RunStatusReply{TimeNs: clock.At(s.Time).UnixNano()}
	for _, a := range s.Actors {
		one := &wire.ActorStatus{Snapshot: actors.PackSnapshot(a, clock.At), Host: a.Host}
		if !a.Heard.IsZero() {
			one.HeardNs = clock.At(a.Heard).UnixNano()
		}
		w.Actors = append(w.Actors, one)
	}
	for _, c := range s.Requests {
		w.Requests = append(w.Requests, packChange(c))
	}
	for _, l := range s.Cut {
		w.Cut = append(w.Cut, &wire.CutLink{From: l.From, To: l.To, ForNs: int64(l.For)})
	}
	return w
}

// UnpackStatus decodes what every actor is doing.
func UnpackStatus(w *wire.RunStatusReply) (event.Status, error) {
	s := event.Status{Time: time.Unix(0, w.GetTimeNs())}
	for _, one := range w.GetActors() {
		a, err := actors.UnpackSnapshot(one.GetSnapshot())
		if err != nil {
			return s, fmt.Errorf("decode the status of an actor: %w", err)
		}
		if a.Host = one.GetHost(); one.GetHeardNs() != 0 {
			a.Heard = time.Unix(0, one.GetHeardNs())
		}
		s.Actors = append(s.Actors, a)
	}
	for _, c := range w.GetRequests() {
		s.Requests = append(s.Requests, unpackChange(c))
	}
	for _, l := range w.GetCut() {
		s.Cut = append(s.Cut, event.CutLink{From: l.GetFrom(), To: l.GetTo(), For: time.Duration(l.GetForNs())})
	}
	return s, nil
}

func packChange(c troupe.Change) *wire.ChangeEvent {
	return &wire.ChangeEvent{Kind: string(c.Kind), Step: c.Step, Lr: c.LR, MinLr: c.MinLR, Note: words.Cut(c.Note, LimitErrorBytes)}
}

func unpackChange(w *wire.ChangeEvent) troupe.Change {
	return troupe.Change{Kind: troupe.ChangeKind(w.GetKind()), Step: w.GetStep(), LR: w.GetLr(), MinLR: w.GetMinLr(), Note: w.GetNote()}
}
