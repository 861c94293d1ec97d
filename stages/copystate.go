package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// CopyState records a copy of a parameter's weight on this rank, or of a part of its optimizer state, in memory of an arena that the
// host can address. It is complete when the list has completed. A replica of this rank, without ZeRO, has the same numbers. Tensors that
// are not float32, such as frozen weights in bfloat16, are refused: they are stored elsewhere.
func (s *Stage) CopyState(l *tensorops.List, to tensorops.Arena, param, part string) (tensorops.Tensor, error) {
	var none tensorops.Tensor
	i := slices.IndexFunc(s.local, func(h *localParam) bool { return h.param.Name == param })
	if i < 0 {
		return none, fmt.Errorf("%w: copy the state of %q: this rank does not hold it", ErrInput, param)
	}
	h := s.local[i]
	t := h.w
	switch {
	case part == EMAPart:
		t = h.ema
	case part != "":
		t = tensorops.Tensor{}
		if at := slices.Index(s.opts.Optimizer.moments(h.param), part); at >= 0 {
			t = h.state[at]
		}
	}
	if part != "" && !t.Valid() {
		return none, fmt.Errorf("%w: copy the state of %s: the optimizer keeps no part %q", ErrInput, param, part)
	}
	if s.opts.Data.splits() || h.blocks != nil || t.DType() != tensorops.Float32 {
		return none, fmt.Errorf("%w: copy the state of %s: this rank has only a part of it, or not in float32", ErrInput, param)
	}
	out, err := tensorops.NewTensor(to, tensorops.Float32, h.param.Shape...)
	if err != nil {
		return none, fmt.Errorf("copy the state of %s: %w", param, err)
	}
	l.Fetch(tensorops.Bytes(out), t)
	return out, nil
}
