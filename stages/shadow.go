package stages

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Shadow is a copy of what training changes on a rank: its trained weights, their optimizer state and their moving averages, in another
// process. It has no layers and no gradients of its own. If it gets each step's finished gradients (Stage.Gradients) and the same
// updates, it stays equal to the rank to the bit. One goroutine at a time may use it.
type Shadow struct {
	stage *Stage
	// trained are the parameters that it holds, in the model's order; index is the place of each by Param.Index.
	trained []*localParam
	index   map[int]int
}

// Gradient is the finished gradient of a parameter on a rank: the sum over the microbatches of a step and over all uses of the parameter,
// before it is scaled.
type Gradient struct {
	Param int // Param.Index
	Grad  tensorops.Tensor
}

// StatePart names a tensor of a rank's state: the weight of a parameter or, with Part, a part of its optimizer state.
type StatePart struct{ Param, Part string }

// NewShadow allocates the shadow of the rank that has these chunks and options. Its numbers are undefined until each of Parts is Put. The
// error is ErrModel for options with which a rank does not have all of its state in float32: ZeRO, or a smaller Optimizer.State; and for
// those with which an update needs other ranks: Muon in a tensor group.
func NewShadow(m *Model, stream tensorops.Stream, chunks []ChunkSpec, o Options) (*Shadow, error) {
	switch {
	case !o.alone():
		return nil, fmt.Errorf("%w: a shadow of a rank with replicas, which have the same state", ErrModel)
	case o.Optimizer.State != tensorops.Float32:
		return nil, fmt.Errorf("%w: a shadow of an optimizer state in %v", ErrModel, o.Optimizer.State)
	case !m.language():
		return nil, fmt.Errorf("%w: a shadow of the program's own layers", ErrModel)
	}
	o.onlyState, o.Pack, o.Copies, o.BriefGrads, o.JoinMemory, o.MemoryBytes = true, false, false, false, false, 0
	st, err := NewStage(m, stream, chunks, o)
	if err != nil {
		return nil, err
	}
	if len(st.homes) > 0 {
		return nil, errors.Join(fmt.Errorf("%w: a shadow of a rank that makes matrices orthogonal with others", ErrModel), st.Close())
	}
	s := &Shadow{stage: st, index: make(map[int]int)}
	for _, h := range st.local {
		if h.w.DType() != tensorops.Float32 {
			return nil, errors.Join(fmt.Errorf("%w: a shadow of %s in %v", ErrModel, h.param.Name, h.w.DType()), st.Close())
		}
		s.index[h.param.Index] = len(s.trained)
		s.trained = append(s.trained, h)
	}
	return s, nil
}

// Stage returns the shadow as a stage of the rank that can only save its state. It shares the shadow's memory.
func (s *Shadow) Stage() *Stage { return s.stage }

// Close frees what the shadow holds besides memory of its stream.
func (s *Shadow) Close() error { return s.stage.Close() }

// Len returns the number of its parameters, and Elements that of their numbers.
func (s *Shadow) Len() int { return len(s.trained) }

// Elements returns the number of trained weights.
func (s *Shadow) Elements() (n int64) {
	for _, h := range s.trained {
		n += int64(h.w.Len())
	}
	return n
}

// GradientBytes returns the sizes of the gradients of a step.
func (s *Shadow) GradientBytes() (all []int) {
	for _, h := range s.trained {
		all = append(all, h.w.Len()*tensorops.Float32.Size())
	}
	return all
}

// Parts returns what it holds, in the model's order.
func (s *Shadow) Parts() (all []StatePart) {
	for _, h := range s.trained {
		all = append(all, StatePart{h.param.Name, ""})
		for _, part := range h.own.moments(h.param) {
			all = append(all, StatePart{h.param.Name, part})
		}
		if h.ema.Valid() {
			all = append(all, StatePart{h.param.Name, EMAPart})
		}
	}
	return all
}

// Put records the copy of a tensor of the rank's state into the shadow. The tensor must exist until the list has completed.
func (s *Shadow) Put(l *tensorops.List, p StatePart, from tensorops.Tensor) error {
	to, err := s.stage.stateOf(p.Param, p.Part)
	if err != nil {
		return err
	}
	if from.DType() != tensorops.Float32 || from.Len() != to.Len() || !from.Contiguous() {
		return fmt.Errorf("%w: the state of %s for a shadow is %v, want %v", ErrInput, partName(p.Part, p.Param), from, to)
	}
	l.Copy(to, from.View(to.Shape()...))
	return nil
}

// CopyState is Stage.CopyState, for the rank.
func (s *Shadow) CopyState(l *tensorops.List, to tensorops.Arena, param, part string) (tensorops.Tensor, error) {
	return s.stage.CopyState(l, to, param, part)
}

// Place returns the place of a parameter among those of the shadow. The error is ErrInput for a gradient that it does not expect.
func (s *Shadow) Place(g Gradient) (int, error) {
	at, ok := s.index[g.Param]
	if !ok {
		return 0, fmt.Errorf("%w: a gradient of parameter %d, which the shadow does not hold", ErrInput, g.Param)
	}
	if w := s.trained[at].w; g.Grad.DType() != tensorops.Float32 || g.Grad.Len() != w.Len() || !g.Grad.Contiguous() {
		return 0, fmt.Errorf("%w: the gradient of %s is %v, want %v", ErrInput, s.trained[at].param.Name, g.Grad, w)
	}
	return at, nil
}

// Fold records the optimizer's update with the gradients of a step, one for each place. They must exist until the list has completed.
func (s *Shadow) Fold(l *tensorops.List, u Update, grads []tensorops.Tensor) {
	if len(grads) != len(s.trained) {
		l.Fail(fmt.Errorf("%w: %d gradients for the %d parameters of a shadow", ErrInput, len(grads), len(s.trained)))
		return
	}
	for i, h := range s.trained {
		s.stage.updateOne(l, u, h, h.w, grads[i].View(h.w.Shape()...), tensorops.Tensor{}, false)
	}
}

// DryStep records an update on a stream that computes nothing, to count the memory that it needs besides the gradients.
func (s *Shadow) DryStep(l *tensorops.List) error {
	apart, grads := tensorops.NewDryStream().Arena(), make([]tensorops.Tensor, len(s.trained))
	for i, h := range s.trained {
		var err error
		if grads[i], err = tensorops.NewTensor(apart, tensorops.Float32, h.w.Shape()...); err != nil {
			return err
		}
	}
	s.Fold(l, Update{Count: 1}, grads)
	return nil
}

// Gradients returns the gradients of the step's trained parameters on this rank. They are finished when the list of GradNorms has
// completed, and do not change until the step's update. A stage whose replicas have the same state has none.
func (s *Stage) Gradients() (all []Gradient) {
	if !s.opts.alone() {
		return nil
	}
	for _, h := range s.local {
		if !h.param.Frozen {
			all = append(all, Gradient{h.param.Index, h.g[h.place()]})
		}
	}
	return all
}

// alone reports whether no other rank has all of the state of this one: it has no replicas, or shares the experts with all of them.
func (o *Options) alone() bool {
	if o.wholeExperts() && o.Data.size() > 1 {
		return !o.Data.splits() && o.Experts.Alone
	}
	return !o.Data.splits() && (o.Data.size() == 1 || o.Experts.size() == o.Data.size())
}
