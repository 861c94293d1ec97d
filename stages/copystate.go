package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// CopyState records a copy of a parameter's weight on this rank, or of a part of its optimizer state, in memory of an arena that the
// host can address. It is complete when the list has completed. With a nil arena the result is not a copy but the tensor itself, in memory
// that the host must be able to address. A replica of this rank, without ZeRO, has the same numbers. Tensors that are not float32, such as
// frozen weights in bfloat16, are refused: they are stored elsewhere.
func (s *Stage) CopyState(l *tensorops.List, to tensorops.Arena, param, part string) (tensorops.Tensor, error) {
	t, err := s.stateOf(param, part)
	if err != nil {
		return tensorops.Tensor{}, err
	}
	if to == nil {
		return t, nil
	}
	out, err := tensorops.NewTensor(to, tensorops.Float32, t.Shape()...)
	if err != nil {
		return tensorops.Tensor{}, fmt.Errorf("copy the state of %s: %w", param, err)
	}
	l.Fetch(tensorops.Bytes(out), t)
	return out, nil
}

// stateOf returns a tensor of this rank's state in float32.
func (s *Stage) stateOf(param, part string) (tensorops.Tensor, error) {
	var none tensorops.Tensor
	h := s.paramNamed(param)
	if h == nil {
		return none, fmt.Errorf("%w: the state of %q: this rank does not hold it", ErrInput, param)
	}
	t := h.w
	switch {
	case part == EMAPart:
		t = h.ema
	case part != "":
		t = tensorops.Tensor{}
		for i, own := range h.own.moments(h.param) {
			if own == part {
				t = h.state[i]
			}
		}
	}
	if part != "" && !t.Valid() {
		return none, fmt.Errorf("%w: the state of %s: the optimizer keeps no part %q", ErrInput, param, part)
	}
	if s.splits(h.param) || h.blocks != nil || t.DType() != tensorops.Float32 {
		return none, fmt.Errorf("%w: the state of %s: this rank has only a part of it, or not in float32", ErrInput, param)
	}
	return t, nil
}

// paramNamed returns a parameter on this rank; nil: it is not here.
func (s *Stage) paramNamed(name string) *localParam {
	for _, h := range s.local {
		if h.param.Name == name {
			return h
		}
	}
	return nil
}
