package stages

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// The optimizer's state may be stored in fewer bits than float32: Optimizer.State. An update widens a piece of it, computes in float32
// and stores the piece again, so that only a piece exists in float32. The random bits of the rounding are a function of the seed, the
// parameter, the number of the update and the element. So every layout has the same state.

// statePiece is how many elements are widened at a time: few enough for a cache, and whole blocks.
const statePiece = 1024 * tensorops.StateBlock

// scaleEnd ends the name of the part of the state that has the scales of another part.
const scaleEnd = "_scale"

// ScalePart returns the name of the part of the optimizer's state that has the scales of a part in Uint8.
func ScalePart(part string) string { return part + scaleEnd }

// IsScale reports whether a part of the optimizer's state has the scales of another one.
func IsScale(part string) bool { return strings.HasSuffix(part, scaleEnd) }

// IsRoot reports whether a part of the optimizer's state is a mean of squares, whose roots are stored in Uint8.
func IsRoot(part string) bool { return part == "v" }

// StateBytes returns the bytes of the state of a model's trained parameters.
func (o Optimizer) StateBytes(m *Model) (bytes int64) {
	for _, p := range m.Params {
		if p.Frozen {
			continue
		}
		each := int64(p.Len()) * int64(o.State.Size())
		if o.State == tensorops.Uint8 {
			each += int64(tensorops.StateScales(p.Len())) * int64(tensorops.Float32.Size())
		}
		bytes += int64(len(o.moments(p))) * each
		if o.EMA > 0 && p.LoadRate == 0 {
			bytes += int64(p.Len()) * int64(tensorops.Float32.Size())
		}
	}
	return bytes
}

// allocState allocates the state of a parameter, or this rank's part of it.
func (s *Stage) allocState(l *tensorops.List, h *localParam) {
	p, dtype := s.ofState(h.param), s.opts.Optimizer.State
	if p.Len() == 0 {
		return
	}
	for i, part := range s.opts.Optimizer.moments(p) {
		h.state[i] = l.Alloc(dtype, p.Shape...)
		l.Fill(h.state[i], 0)
		if dtype == tensorops.Uint8 {
			h.scales[i] = l.Alloc(tensorops.Float32, tensorops.StateScales(p.Len()))
			l.Fill(h.scales[i], 0)
		}
		h.stateKeys[i] = rng.NewKey(s.opts.Seed, rng.StringStream("state/"+partName(part, p.Name)))
	}
	// Within a rank's slice elements count on, so the index does not depend on how replicas share it.
	first, slice := -1, h.param.Slice
	slice.Range(0, 0).Runs(h.param.Whole, func(_, wholeAt, _ int) {
		if first < 0 {
			first = wholeAt
		}
	})
	from := slice.First
	if s.splits(h.param) {
		part, _ := s.ownPart(h.param)
		from += part
	}
	h.stateFirst = uint64(first + from)
}

// updateNarrow records the update of a parameter, or of a part of it, whose state is not float32.
func (s *Stage) updateNarrow(l *tensorops.List, u Update, h *localParam, w, g, low tensorops.Tensor, clear bool) {
	parts := h.own.moments(h.param)
	if h.own.byMuon(h.param) { // the matrix must be whole
		wide := [2]tensorops.Tensor{l.Alloc(tensorops.Float32, w.Shape()...)}
		s.widen(l, h, 0, parts[0], 0, wide[0])
		s.updateFrom(l, u, h, w, wide, g, low, clear)
		s.narrow(l, h, 0, parts[0], 0, wide[0], uint64(u.Count))
		return
	}
	for at, n := 0, w.Len(); at < n; at += statePiece {
		k := min(statePiece, n-at)
		var wide [2]tensorops.Tensor
		for i, part := range parts {
			wide[i] = l.Alloc(tensorops.Float32, k)
			s.widen(l, h, i, part, at, wide[i])
		}
		s.updateFrom(l, u, h, w.Part(at, k), wide, g.Part(at, k), low.Part(at, k), clear)
		for i, part := range parts {
			s.narrow(l, h, i, part, at, wide[i], uint64(u.Count))
		}
	}
}

// widen records that elements of a part of the state, from element at on, are read into a tensor.
func (s *Stage) widen(l *tensorops.List, h *localParam, i int, part string, at int, wide tensorops.Tensor) {
	state, scales := h.statePart(i, at, wide.Len())
	l.WidenState(wide, state, scales, IsRoot(part))
}

// narrow records that such a tensor is stored, and frees it. Without an update, 0, it is rounded to the nearest number.
func (s *Stage) narrow(l *tensorops.List, h *localParam, i int, part string, at int, wide tensorops.Tensor, update uint64) {
	state, scales := h.statePart(i, at, wide.Len())
	l.NarrowState(state, scales, wide, tensorops.NarrowStateOpts{Root: IsRoot(part), Nearest: update == 0, Key: h.stateKeys[i],
		Update: update, First: h.stateFirst + uint64(at)})
	l.Free(wide)
}

// statePart returns views of n elements of a part of the state, and of their scales. at is the first element of a block.
func (h *localParam) statePart(i, at, n int) (state, scales tensorops.Tensor) {
	return h.state[i].Part(at, n), h.scales[i].Part(at/tensorops.StateBlock, tensorops.StateScales(n))
}

// loadState fills a part of the state from a source. What was stored in the same type is read without a loss.
func (s *Stage) loadState(h *localParam, i int, part string, src Source, host []float32) error {
	p := s.ofState(h.param)
	host = host[:p.Len()]
	err := src(p, part, host)
	for at := 0; err == nil && at < len(host); at += statePiece {
		l, numbers := s.stream.NewList(), host[at:min(at+statePiece, len(host))]
		wide := l.Alloc(tensorops.Float32, len(numbers))
		l.Upload(wide, tensorops.HostBytes(numbers))
		s.narrow(l, h, i, part, at, wide, 0)
		err = tensorops.Run(s.stream, l)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", partName(part, p.Name), err)
	}
	return nil
}

// scalesOf describes the scales of a parameter's state, or of this rank's part of it.
func (s *Stage) scalesOf(p *Param) *Param {
	own := *p
	own.Shape, own.Slice = []int{tensorops.StateScales(p.Len())}, Slice{}
	own.Whole = own.Shape
	if s.splits(p) {
		from, to := s.ownPart(p)
		own.Slice = Slice{}.Range(from/tensorops.StateBlock, tensorops.StateScales(to))
		own.Shape = own.Slice.Shape(own.Whole)
	}
	return &own
}
