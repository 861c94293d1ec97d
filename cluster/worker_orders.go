package cluster

import (
	"errors"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/wire"
)

// control handles a control message from the coordinator.
func (w *membership) control(from uuid.UUID, m *wire.Control) {
	w.mu.Lock()
	defer w.mu.Unlock()
	boss := w.coordinator
	switch {
	case w.leaving:
		return
	case string(boss.GetIncarnation()) != string(from[:]):
		w.mesh.Refuse(from.String(), errors.New("an order from a process that is not the coordinator"))
		return
	}
	switch k := m.Kind.(type) {
	case *wire.Control_Assign:
		w.assigned(k.Assign, boss)
	case *wire.Control_Prepare:
		w.prepare(m.GetRequest(), k.Prepare)
	case *wire.Control_Release:
		w.released(k.Release)
	case *wire.Control_Connect:
		w.running.Go(func() { w.connect(m.GetRequest(), k.Connect) }) // ends with the measurement
	case *wire.Control_Carry:
		w.running.Go(func() { w.carry(m.GetRequest(), k.Carry) }) // ends with the measurement
	case *wire.Control_Measure:
		w.running.Go(func() { w.measure(m.GetRequest(), k.Measure) }) // ends with the measurement
	}
}

// assigned starts the stages of ranks, and replies when they are ready. w.mu is held.
func (w *membership) assigned(m *wire.Assign, boss *wire.Peer) {
	p, old, err := w.accept(m) // before the next message, which may be a release
	w.running.Go(func() {      // ends when the stages have begun
		answer := &wire.Assigned{Attempt: m.GetAttempt()}
		if err == nil {
			err = w.assign(p, old, m, boss, answer)
		}
		if err != nil {
			answer.Error, answer.Unkept = err.Error(), errors.Is(err, errUnkept)
			answer.Crowded = errors.Is(err, errCrowded)
			w.log.Error("can't compute ranks", "ranks", m.GetRanks(), "err", err)
		}
		w.tell(&wire.Control{Kind: &wire.Control_Assigned{Assigned: answer}})
	})
}

// released ends the ranks of an attempt, and replies when all their resources are free. w.mu is held.
func (w *membership) released(m *wire.Release) {
	id, err := uuid.FromBytes(m.GetAttempt())
	if err != nil {
		return
	}
	const why = "the coordinator released them"
	p := w.parts[id]
	var k *keptPart
	if w.kept != nil && w.kept.attempt == id { // else it may be of another run, between two attempts
		k, w.kept = w.kept, nil
	}
	if w.prepares != nil && w.prepares.of == id {
		w.dropPrepared(why)
	}
	if run, err := uuid.FromBytes(m.GetRun()); err == nil && m.SavedStep != nil {
		if _, counts := w.saved[run]; counts {
			w.saved[run] = m.SavedStep
		}
	}
	delete(w.gaveUp, id)
	if p != nil {
		p.end(why) // before the lock is free, or its stages might still be kept
	}
	w.running.Go(func() { // ends with the attempt's stages
		if p != nil {
			p.wait()
		}
		k.close(why)
		w.tell(&wire.Control{Kind: &wire.Control_Released{Released: &wire.Released{Attempt: id[:]}}})
	})
}

// tell sends the coordinator a message.
func (w *membership) tell(m *wire.Control) {
	w.mu.Lock()
	boss := w.coordinator
	w.mu.Unlock()
	id, err := uuid.FromBytes(boss.GetIncarnation())
	if err == nil {
		err = w.mesh.Control(id, m)
	}
	if err != nil {
		w.log.Error("can't send to the coordinator", "err", err)
	}
}
