package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// keepers writes a checkpoint from what the stages have sent, and lets the stages that keep their
// parts write them. A stage that can't write has to send its part; then the checkpoint is written
// again.
type keepers struct {
	spec    *Spec
	cell    *statusCell
	begin   *BeginSave
	stages  []*actor.PID
	root    *actor.RootContext
	states  []*StageState   // one for each rank
	answers chan any        // *StateWritten and *StageState of the stages that were asked
	ended   context.Context // done when no answer will come any more
	alone   map[int]error   // errors of ranks that could not write
}

// write writes the checkpoint. It returns soon after ended is done, unless everything has arrived.
func (k *keepers) write() (dir string, err error) {
	defer caught(&err)
	defer k.release()
	for {
		k.cell.store(event.Snapshot{Step: k.begin.Step, Doing: event.Writing})
		saved, holder := k.saved()
		if saved, err = k.spec.withFrozen(k.begin.Step, saved); err != nil {
			return "", err
		}
		if saved, err = join(saved); err != nil {
			return "", err
		}
		if k.begin.Weights {
			return k.spec.WriteBest(context.Background(), k.begin.State, saved)
		}
		if len(holder) == 0 {
			return k.spec.WriteCheckpoint(context.Background(), k.begin.State, saved, k.begin.Best)
		}
		dir, err = k.spec.WriteShared(context.Background(), k.begin.State, saved, k.begin.Best, trainstate.Others{
			Attempt: k.begin.Attempt,
			Holds:   func(tensor string) bool { _, held := holder[tensor]; return held },
			Write:   func(places []trainstate.Place) ([]uint32, error) { return k.letWrite(places, holder) },
		})
		failed := k.failed(err, holder)
		if len(failed) == 0 {
			return dir, err
		}
		if err := k.fetch(failed); err != nil {
			return "", err
		}
	}
}

// tensorAt identifies a tensor that a stage keeps: its index among those of the rank.
type tensorAt struct{ rank, index int }

// saved returns the tensors of all ranks and, by name, the holders of those that are kept.
func (k *keepers) saved() (saved []stages.Saved, holder map[string]tensorAt) {
	holder = make(map[string]tensorAt)
	for _, s := range k.states {
		saved = append(saved, s.Saved...)
		if !s.Kept {
			continue
		}
		for i, v := range s.Saved {
			holder[v.Name] = tensorAt{s.Rank, i}
		}
	}
	return saved, holder
}

// cantWriteError names the ranks that could not write their parts.
type cantWriteError struct{ ranks map[int]error }

func (e *cantWriteError) Error() string {
	for rank, err := range e.ranks {
		return fmt.Sprintf("%d stages could not write their parts of the checkpoint, for example stage %d: %v", len(e.ranks), rank, err)
	}
	return ""
}

// letWrite asks each stage that keeps its part to write it, and waits for all.
func (k *keepers) letWrite(places []trainstate.Place, holder map[string]tensorAt) (sums []uint32, err error) {
	asked := make(map[int]*WriteState)
	for _, s := range k.states {
		if s.Kept {
			asked[s.Rank] = &WriteState{Header: s.Header, Places: make([]trainstate.Place, len(s.Saved))}
		}
	}
	for _, p := range places {
		at, ok := holder[p.Tensor]
		if !ok {
			return nil, fmt.Errorf("no stage keeps the tensor %q", p.Tensor)
		}
		asked[at.rank].Places[at.index] = p
	}
	for rank, m := range asked {
		k.root.Send(k.stages[rank], m)
	}
	came, cant := newBarrier(k.spec), &cantWriteError{make(map[int]error)}
	got := make(map[int][]uint32)
	for _, s := range k.states {
		if !s.Kept {
			came.mark(s.Rank)
		}
	}
	for !came.all() {
		k.cell.store(came.snapshot(k.begin.Step, 0))
		m, err := k.next()
		if err != nil {
			return nil, err
		}
		w, ok := m.(*StateWritten)
		if !ok || asked[w.Rank] == nil || came.came[w.Rank] {
			continue
		}
		switch {
		case w.Err != nil:
			cant.ranks[w.Rank] = w.Err
		case len(w.Sums) != len(asked[w.Rank].Places):
			cant.ranks[w.Rank] = fmt.Errorf("it reported %d tensors, want %d", len(w.Sums), len(asked[w.Rank].Places))
		}
		got[w.Rank] = w.Sums
		came.mark(w.Rank)
	}
	k.cell.store(event.Snapshot{Step: k.begin.Step, Doing: event.Writing})
	if len(cant.ranks) > 0 {
		return nil, cant
	}
	for _, p := range places {
		at := holder[p.Tensor]
		sums = append(sums, got[at.rank][at.index])
	}
	return sums, nil
}

// next returns the next answer.
func (k *keepers) next() (any, error) {
	select {
	case m := <-k.answers:
		return m, nil
	case <-k.ended.Done():
		return nil, context.Cause(k.ended)
	}
}

// failed returns the ranks that have to send their parts, after an error.
func (k *keepers) failed(err error, holder map[string]tensorAt) (ranks []int) {
	var cant *cantWriteError
	var wrong *trainstate.NotWrittenError
	why := make(map[int]error)
	switch {
	case errors.As(err, &cant):
		why = cant.ranks
	case errors.As(err, &wrong):
		for _, name := range wrong.Tensors {
			if at, ok := holder[name]; ok {
				why[at.rank] = err
			}
		}
	}
	for rank, err := range why {
		k.alone[rank] = err
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	return ranks
}

// fetch makes ranks send what they keep.
func (k *keepers) fetch(ranks []int) error {
	came := newBarrier(k.spec)
	for rank := range k.states {
		if slices.Contains(ranks, rank) {
			k.root.Send(k.stages[rank], &SendState{k.states[rank].Header})
		} else {
			came.mark(rank)
		}
	}
	for !came.all() {
		k.cell.store(came.snapshot(k.begin.Step, 0))
		m, err := k.next()
		if err != nil {
			return err
		}
		s, ok := m.(*StageState)
		if !ok {
			continue
		}
		if s.Kept || came.came[s.Rank] {
			s.release()
			continue
		}
		k.states[s.Rank] = s
		came.mark(s.Rank)
	}
	return nil
}

// release frees the memory, here and where it is kept.
func (k *keepers) release() {
	for rank, s := range k.states {
		if s.Kept {
			k.root.Send(k.stages[rank], &DropState{s.Header})
		} else {
			s.release()
		}
	}
}
