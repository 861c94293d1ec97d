package actors

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// If no process has room for the ranks of one that is lost, an attempt writes a checkpoint of the last decided step (Spec.Rescue). A lost
// rank has no stage there: it saves its state from its shadow, or from a rank with the same one. All shadows outlive the attempt with the
// stages. If it loses another process, the next one writes the checkpoint with what is left.

// rescue takes the kept shadow of a rank in place of its stage; nil: the rank is not rescued, or the shadow is not here.
func (l *local) rescue(rank int) *shadow {
	if l.spec.Rescue == nil {
		return nil
	}
	for _, k := range l.spec.Adopt {
		if s := k.shadowOf(rank); s != nil {
			l.rescued[rank], s.holder = s, k.Rank
			return s
		}
	}
	return nil
}

// keepRescued takes out of a rescue the shadows that a rank's actor has held before it: those from which lost ranks have saved, and the
// others.
func (l *local) keepRescued(holder int) (all []*shadow) {
	if l.spec.Rescue == nil {
		return nil
	}
	for rank, s := range l.rescued {
		if s != nil && s.holder == holder && l.ends[rank] != nil { // otherwise it may not be at the target
			all = append(all, s)
		}
	}
	all = slices.DeleteFunc(slices.Concat(all, l.retired[holder]), func(s *shadow) bool { return !s.ready || s.broken != nil })
	for _, s := range all {
		s.stays = true
	}
	return all
}

// equal is a rank that saves from the kept stage of another one, which has the same weights and optimizer state. It can do nothing else.
type equal struct {
	Compute
	of ReplicaSaver
	// Its place among the replicas, and among the ranks with the same experts.
	replica, copy int
}

// ReplicaSaver is a Compute that can save as another rank that has the same weights and optimizer state, at the same time as it saves for
// its own one.
type ReplicaSaver interface {
	SaveAs(l *tensorops.List, copies tensorops.Arena, replica, copy int) []stages.Saved
}

// Save records copies of the other stage's tensors. That one has its state: the scheduler asks for it when all stages are ready.
func (e equal) Save(l *tensorops.List, copies tensorops.Arena) []stages.Saved {
	return e.of.SaveAs(l, copies, e.replica, e.copy)
}

// Close does nothing: the tensors are the other stage's.
func (e equal) Close() error { return nil }

// equalTo returns what saves for a rescued rank, from a kept rank here that has the same state; nil: the rank is not rescued, or there is
// none.
func (l *local) equalTo(rank int) Compute {
	if l.spec.Rescue == nil || l.spec.Copies == nil {
		return nil
	}
	for _, other := range l.spec.Copies(rank) {
		if k := l.spec.kept(other); k != nil && other != rank {
			if of, ok := k.stage.(ReplicaSaver); ok {
				_, copy := l.spec.Grid.ExpertPlace(rank)
				return equal{k.stage, of, slices.Index(l.spec.Grid.Group(rank, grid.Copies), rank), copy}
			}
		}
	}
	return nil
}

// FrozenWeights are the weights of a model that are not trained.
type FrozenWeights struct {
	StoredWeights
	Types  map[int]tensorops.DType // in which the stages save them, by Param.Index; others are not saved
	Stages map[int]int             // that have them, by Param.Index
}

// unread says that a weight of a lost rank cannot be read again for the checkpoint of a step.
func (f *FrozenWeights) unread(p *stages.Param, step int64, err error) error {
	return fmt.Errorf("no checkpoint of step %d: the frozen weight %s of a lost rank of stage %d cannot be read again: %w; "+
		"check the files that the run began with", step, p.Name, f.Stages[p.Index], err)
}

// withFrozen adds to what the ranks have saved the frozen weights that they have not saved whole: shadows have only trained ones.
func (s *Spec) withFrozen(step int64, saved []stages.Saved) ([]stages.Saved, error) {
	if s.Frozen == nil {
		return saved, nil
	}
	numbers := make(map[string]int)
	for _, v := range saved {
		numbers[v.Name] += elements(v.Shape)
	}
	for _, p := range s.Frozen.Params {
		dtype, saves := s.Frozen.Types[p.Index]
		if !saves || numbers[p.Name] == p.Len() {
			continue
		}
		saved = slices.DeleteFunc(saved, func(v stages.Saved) bool { return v.Name == p.Name })
		data := make([]float32, p.Len())
		if err := s.Frozen.Source(p, "", data); err != nil {
			return nil, s.Frozen.unread(p, step, err)
		}
		v := stages.Saved{Name: p.Name, Index: p.Index, Shape: p.Shape, DType: dtype}
		switch dtype {
		case tensorops.Float32:
			v.Data = data
		case tensorops.BFloat16:
			narrow := make([]uint16, len(data))
			for i, x := range data {
				narrow[i] = tensorops.ToBFloat16(x)
			}
			v.Narrow = tensorops.HostBytes(narrow)
		default:
			return nil, s.Frozen.unread(p, step, fmt.Errorf("it is saved in %v", dtype))
		}
		saved = append(saved, v)
	}
	return saved, nil
}
