package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// Saved is a tensor in host memory, under the name that checkpoints use.
type Saved struct {
	Name  string // a parameter's name, after the part of the optimizer state if any, as in "m.…"
	Index int    // Param.Index
	Part  string // "": the weight
	Shape []int
	// Slice is the part of a tensor of shape Whole that this is, if tensor parallelism or ZeRO
	// splits the tensor. Slice.Put copies it into place.
	Slice Slice
	Whole []int
	// DType is the type in which the stage holds the tensor, the same in every layout: Float32, BFloat16 for a frozen weight, or
	// Optimizer.State. The numbers are in Data if it is Float32, otherwise in Narrow.
	DType  tensorops.DType
	Data   []float32
	Narrow []byte
}

// Bytes returns the numbers as bytes, in the host's byte order.
func (s *Saved) Bytes() []byte {
	if s.DType != tensorops.Float32 {
		return s.Narrow
	}
	return tensorops.HostBytes(s.Data)
}

// Hold sets the numbers to those of a tensor in memory that the host can address.
func (s *Saved) Hold(t tensorops.Tensor) {
	if s.DType = t.DType(); s.DType != tensorops.Float32 {
		s.Narrow = tensorops.Bytes(t)
		return
	}
	s.Data = tensorops.Elements[float32](t)
}

// Source fills dst with a stored tensor, or with the part of it given by p.Slice. part is "" for
// the weight, or the name of a part of the optimizer state.
type Source func(p *Param, part string, dst []float32) error

// InitWeights returns the Source of initial weights: a function of (seed, name, index).
func InitWeights(seed uint64) Source {
	return func(p *Param, part string, dst []float32) error {
		if u := p.Init.Uniform; part == "" && u != 0 {
			key := rng.NewKey(seed, rng.StringStream("weight/"+p.Name))
			p.Slice.Runs(p.Whole, func(at, wholeAt, n int) { rng.Between(dst[at:at+n], key, uint64(wholeAt), -u, u) })
			return nil
		}
		if part != "" || p.Init.Std == 0 {
			v := float32(p.Init.Const)
			if part != "" {
				v = 0
			}
			for i := range dst {
				dst[i] = v
			}
			return nil
		}
		key := rng.NewKey(seed, rng.StringStream("weight/"+p.Name))
		p.Slice.Runs(p.Whole, func(at, wholeAt, n int) {
			rng.Normal(dst[at:at+n], key, uint64(wholeAt), p.Init.Const, p.Init.Std)
		})
		return nil
	}
}

// DryLoad allocates and frees the memory that Load uses, for a forecast: weights are loaded in
// float32, including those kept only in bfloat16.
func (s *Stage) DryLoad() error {
	for _, h := range s.local {
		t, n := h.w, s.hostLen(h)
		switch {
		case h.blocks != nil:
			t = h.blocks.all
		case h.splitsWeight:
			t = s.ownWeight(h)
			n = t.Len()
		}
		if !t.Valid() || t.DType() == tensorops.Float32 {
			continue
		}
		l := s.stream.NewList()
		l.Free(s.wideFor(l, t, n))
		if err := tensorops.Run(s.stream, l); err != nil {
			return fmt.Errorf("allocate memory to load %s: %w", h.param.Name, err)
		}
	}
	return nil
}

// Save records copies of every weight that this rank reports (with an adapter: of every trained one), and of its optimizer state, in memory
// of an arena that the host can address. They are complete when the list has completed, and exist
// until the arena is closed. With a nil arena the result is not copies but the tensors themselves,
// in memory that the host must be able to address. Then no list may change them while they are
// read.
func (s *Stage) Save(l *tensorops.List, copies tensorops.Arena) []Saved {
	return s.save(l, copies, true, s.replicaOf)
}

// SaveWeights is Save without the optimizer state.
func (s *Stage) SaveWeights(l *tensorops.List, copies tensorops.Arena) []Saved {
	return s.save(l, copies, false, s.replicaOf)
}

// SaveAs is Save of another replica of the stage, from this one: both have the same weights and optimizer state, in expert groups the same
// experts. replica is its place in the group of DataParallel, and copy that among the ranks with the same experts. The list fails if each
// has parts of its own, as with ZeRO.
func (s *Stage) SaveAs(l *tensorops.List, copies tensorops.Arena, replica, copy int) []Saved {
	if s.opts.Data.splits() {
		l.Fail(fmt.Errorf("%w: replica %d has parts of its own, which this one cannot save", ErrInput, replica))
		return nil
	}
	return s.save(l, copies, true, func(p *Param) int {
		if s.divided(p) {
			return copy
		}
		return replica
	})
}

// replicaOf returns which of the replicas of a parameter the stage has.
func (s *Stage) replicaOf(p *Param) int {
	replica, _ := s.copyOf(p)
	return replica
}

func (s *Stage) save(l *tensorops.List, copies tensorops.Arena, withState bool, replica func(*Param) int) []Saved {
	var out []Saved
	for _, h := range s.local {
		if !s.saves(h) {
			continue
		}
		save := func(t tensorops.Tensor, p *Param, part string) {
			if t.DType().Quantized() {
				l.Fail(fmt.Errorf("copy of %s: %w", partName(part, p.Name), errQuantized))
				return
			}
			if copies == nil {
				out = append(out, inPlace(p, part, t))
				return
			}
			to, err := tensorops.NewTensor(copies, t.DType(), p.Shape...)
			if err != nil {
				l.Fail(fmt.Errorf("copy of %s: %w", partName(part, p.Name), err))
				return
			}
			v := saved(p, part)
			v.Hold(to)
			l.Fetch(v.Bytes(), t)
			out = append(out, v)
		}
		first := replica(h.param) == 0 // it saves what all replicas have
		switch {
		case h.splitsWeight && s.ofState(h.param).Len() > 0:
			save(s.ownWeight(h), s.ofState(h.param), "")
		case !h.splitsWeight && first:
			save(h.w, h.param, "")
		}
		for i, part := range h.own.moments(h.param) {
			if withState && h.state[i].Valid() && (first || s.splits(h.param)) {
				save(h.state[i], s.ofState(h.param), part)
				if h.scales[i].Valid() {
					save(h.scales[i], s.scalesOf(h.param), ScalePart(part))
				}
			}
		}
		if withState && h.ema.Valid() && (first || s.splits(h.param)) {
			save(h.ema, s.ofState(h.param), EMAPart)
		}
	}
	return out
}

// saves reports whether this rank saves a parameter. With an adapter, the frozen weights are those of
// the base, which is stored already.
func (s *Stage) saves(h *localParam) bool {
	return h.owner && (!h.param.Frozen || s.model.Config.Adapter == nil)
}

// FrozenTypes returns the types in which the rank saves its frozen weights, by Param.Index.
func (s *Stage) FrozenTypes() map[int]tensorops.DType {
	types := make(map[int]tensorops.DType)
	for _, h := range s.local {
		if h.param.Frozen && s.saves(h) {
			types[h.param.Index] = h.w.DType()
		}
	}
	return types
}

// SavedBytes returns the bytes of the copies of Save, without and of the optimizer state.
func (s *Stage) SavedBytes() (weights, state int64) {
	return s.savedBytes(func(*Param) bool { return true })
}

// SavedExpertBytes returns those of the parameters that the rank's expert group divides, or that it has whole in a tensor group.
func (s *Stage) SavedExpertBytes() (weights, state int64) { return s.savedBytes(s.divided) }

func (s *Stage) savedBytes(of func(*Param) bool) (weights, state int64) {
	for _, h := range s.local {
		if !s.saves(h) || !of(h.param) {
			continue
		}
		if h.splitsWeight {
			weights += int64(s.ownWeight(h).Len() * h.weightPart.DType().Size())
		} else {
			weights += int64(h.w.Len() * h.w.DType().Size()) // 0 if quantized, which is not saved
		}
		for _, t := range []tensorops.Tensor{h.state[0], h.state[1], h.scales[0], h.scales[1], h.ema} {
			if t.Valid() {
				state += int64(t.Len() * t.DType().Size())
			}
		}
	}
	return weights, state
}

// saved makes the description of a parameter's tensor.
func saved(p *Param, part string) Saved {
	v := Saved{Name: partName(part, p.Name), Index: p.Index, Part: part, Shape: p.Shape}
	if !p.Slice.whole() {
		v.Slice, v.Whole = p.Slice, p.Whole
	}
	return v
}

// inPlace returns a tensor in its own memory.
func inPlace(p *Param, part string, t tensorops.Tensor) Saved {
	v := saved(p, part)
	v.Hold(t)
	return v
}

// Grads records copies of the accumulated gradients, for tests and inspection.
func (s *Stage) Grads(l *tensorops.List) []Saved {
	var out []Saved
	for _, h := range s.local {
		for place, g := range h.g {
			if rows := h.rows[place]; rows != nil {
				g = l.Alloc(tensorops.Float32, h.param.Shape...)
				l.Fill(g, 0)
				rows.addTo(l, g)
				l.Free(g)
			}
			if g.Valid() {
				v := saved(h.param, "")
				v.Part, v.Data = fmt.Sprintf("grad%d", place), make([]float32, h.param.Len())
				l.Fetch(tensorops.HostBytes(v.Data), g)
				out = append(out, v)
			}
		}
	}
	return out
}

// partName returns the name of a part of a parameter in a checkpoint.
func partName(part, name string) string {
	if part == "" {
		return name
	}
	return part + "." + name
}

// CopyWeights records copies of every weight that this rank reports. to returns the memory for a
// whole parameter, given its Index. The copies are complete after the list has completed and place,
// unless it is nil, has returned: a rank's part of a matrix need not be contiguous in the whole.
func (s *Stage) CopyWeights(l *tensorops.List, to func(param int) []float32) (place func() error) {
	type apart struct {
		p           *Param
		whole, part []float32
	}
	var all []apart
	for _, h := range s.local {
		if replica, _ := s.copyOf(h.param); !h.owner || replica > 0 && !h.splitsWeight {
			continue
		}
		p, t, whole := h.param, h.w, to(h.param.Index)
		if n := elements(p.Whole); len(whole) != n {
			l.Fail(fmt.Errorf("%w: copy of %s: the memory has room for %d numbers, want %d", ErrInput, p.Name, len(whole), n))
			return nil
		}
		if h.blocks != nil {
			l.Fail(fmt.Errorf("copy of %s: %w", p.Name, errQuantized))
			return nil
		}
		if h.splitsWeight {
			if p = s.ofState(p); p.Len() == 0 {
				continue
			}
			t = s.ownWeight(h)
		}
		runs, first := 0, 0
		p.Slice.Runs(p.Whole, func(_, wholeAt, _ int) {
			if runs++; runs == 1 {
				first = wholeAt
			}
		})
		if runs == 1 {
			fetch(l, whole[first:first+p.Len()], t)
			continue
		}
		part := make([]float32, p.Len())
		fetch(l, part, t)
		all = append(all, apart{p, whole, part})
	}
	if all == nil {
		return nil
	}
	return func() error {
		for _, a := range all {
			if err := a.p.Slice.Put(a.whole, a.part, a.p.Whole); err != nil {
				return fmt.Errorf("copy of %s: %w", a.p.Name, err)
			}
		}
		return nil
	}
}

// HostWeight returns the memory of a weight, for a stage without LowWeights on a device whose
// memory the host can address. The caller must not write to it while a list reads it.
func (s *Stage) HostWeight(param int) []float32 {
	return tensorops.Elements[float32](s.byParam[param].w)
}
