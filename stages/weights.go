package stages

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/host/hostmem"
	"github.com/troupe-ml/troupe/tensorops"
)

// Saved is a tensor in host memory, under the name that checkpoints use.
type Saved struct {
	Name  string // a parameter's name; with the optimizer's part in front, as "m.…"
	Index int    // Param.Index
	Part  string // "": the weight
	Shape []int
	// Slice is the part of a tensor of shape Whole that it is, where tensor parallelism or ZeRO splits
	// it. Slice.Put puts it in its place.
	Slice Slice
	Whole []int
	// DType is what the stage holds it as: Float32, or BFloat16 of a frozen weight, under every
	// layout the same. Then Narrow are its numbers, and else Data.
	DType  tensorops.DType
	Data   []float32
	Narrow []byte
}

// Bytes are the numbers, as the host has them.
func (s *Saved) Bytes() []byte {
	if s.DType == tensorops.BFloat16 {
		return s.Narrow
	}
	return tensorops.HostBytes(s.Data)
}

// Hold makes it one of the numbers of a tensor that the host can address.
func (s *Saved) Hold(t tensorops.Tensor) {
	if s.DType = t.DType(); s.DType == tensorops.BFloat16 {
		s.Narrow = tensorops.Bytes(t)
		return
	}
	s.Data = tensorops.Elements[float32](t)
}

// Source fills dst with a stored tensor, or with the part of it that p.Slice says. part is ""
// for the weight, or one of the optimizer's parts.
type Source func(p *Param, part string, dst []float32) error

// InitWeights is the Source of initial weights: a function of (seed, name, index).
func InitWeights(seed uint64) Source {
	return func(p *Param, part string, dst []float32) error {
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
			rng.Normal(dst[at:at+n], key, uint64(wholeAt), 0, p.Init.Std)
		})
		return nil
	}
}

// Load fills every weight, and the optimizer's state where withState, from a
// source: one tensor at a time, through one piece of host memory.
func (s *Stage) Load(src Source, withState bool) error {
	largest := 0
	for _, h := range s.local {
		largest = max(largest, h.param.Len())
	}
	piece, err := hostmem.New(largest * tensorops.Float32.Size())
	if err != nil {
		return fmt.Errorf("memory to load from: %w", err)
	}
	host := tensorops.HostNumbers[float32](piece.Bytes)
	for _, h := range s.local {
		switch {
		case !h.splitsWeight:
			err = errors.Join(err, s.load(h.w, h.param, "", src, host))
		case s.ofState(h.param).Len() > 0:
			err = errors.Join(err, s.load(s.ownWeight(h), s.ofState(h.param), "", src, host))
		}
		if !withState {
			continue
		}
		for i, part := range s.opts.Optimizer.Parts() {
			if h.state[i].Valid() {
				err = errors.Join(err, s.load(h.state[i], s.ofState(h.param), part, src, host))
			}
		}
	}
	if err = errors.Join(err, piece.Free()); err != nil {
		return err
	}
	l := s.stream.NewList()
	s.round(l)
	return tensorops.Run(s.stream, l)
}

// DryLoad takes the memory that Load does, and gives it back, for a forecast: weights come in float32, also those that are
// kept in bfloat16 alone.
func (s *Stage) DryLoad() error {
	for _, h := range s.local {
		t := h.w
		if h.splitsWeight {
			t = s.ownWeight(h)
		}
		if !t.Valid() || t.DType() == tensorops.Float32 {
			continue
		}
		l := s.stream.NewList()
		l.Free(l.Alloc(tensorops.Float32, t.Shape()...))
		if err := tensorops.Run(s.stream, l); err != nil {
			return fmt.Errorf("memory to load %s: %w", h.param.Name, err)
		}
	}
	return nil
}

func (s *Stage) load(t tensorops.Tensor, p *Param, part string, src Source, host []float32) error {
	host = host[:p.Len()]
	err := src(p, part, host)
	if err == nil {
		l := s.stream.NewList()
		if t.DType() == tensorops.Float32 {
			l.Upload(t, tensorops.HostBytes(host))
		} else {
			wide := l.Alloc(tensorops.Float32, t.Shape()...)
			l.Upload(wide, tensorops.HostBytes(host))
			l.Copy(t, wide)
			l.Free(wide)
		}
		err = tensorops.Run(s.stream, l)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", partName(part, p.Name), err)
	}
	return nil
}

// Save records copies, in memory of an arena that the host can address, of every weight
// that this rank answers for and of its optimizer state. They are filled when the list
// has completed, and are there until the arena is closed. With a nil arena they are no copies
// but the tensors themselves, whose memory the host must be able to address: no list may change
// them while somebody reads them.
func (s *Stage) Save(l *tensorops.List, copies tensorops.Arena) []Saved {
	var out []Saved
	for _, h := range s.local {
		if !h.owner {
			continue
		}
		save := func(t tensorops.Tensor, p *Param, part string) {
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
		first := s.opts.Data.rank() == 0 // what all replicas have is its to save
		switch {
		case h.splitsWeight && s.ofState(h.param).Len() > 0:
			save(s.ownWeight(h), s.ofState(h.param), "")
		case !h.splitsWeight && first:
			save(h.w, h.param, "")
		}
		for i, part := range s.opts.Optimizer.Parts() {
			if h.state[i].Valid() && (first || s.opts.Data.splits()) {
				save(h.state[i], s.ofState(h.param), part)
			}
		}
	}
	return out
}

// SavedBytes is what the copies of Save take.
func (s *Stage) SavedBytes() int64 {
	var n int
	for _, h := range s.local {
		if !h.owner {
			continue
		}
		if h.splitsWeight {
			n += s.ownWeight(h).Len() * h.weightPart.DType().Size()
		} else {
			n += h.w.Len() * h.w.DType().Size()
		}
		for _, t := range h.state {
			if t.Valid() {
				n += t.Len() * t.DType().Size()
			}
		}
	}
	return int64(n)
}

// saved names a tensor of a parameter.
func saved(p *Param, part string) Saved {
	v := Saved{Name: partName(part, p.Name), Index: p.Index, Part: part, Shape: p.Shape}
	if !p.Slice.whole() {
		v.Slice, v.Whole = p.Slice, p.Whole
	}
	return v
}

// inPlace is a tensor as it lies in memory.
func inPlace(p *Param, part string, t tensorops.Tensor) Saved {
	v := saved(p, part)
	v.Hold(t)
	return v
}

// Grads records copies of the accumulated gradients, for tests and for people
// who look at them.
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

// partName is the name of a part of a parameter in a checkpoint.
func partName(part, name string) string {
	if part == "" {
		return name
	}
	return part + "." + name
}

// CopyWeights records copies of what this rank has of every weight that it answers for, to the memory that to
// gives for a whole parameter, by its Index. They are there when the list has completed and then place, if it is
// not nil, has returned: what a rank has of a matrix may lie apart in the whole of it.
func (s *Stage) CopyWeights(l *tensorops.List, to func(param int) []float32) (place func() error) {
	type apart struct {
		p           *Param
		whole, part []float32
	}
	var all []apart
	for _, h := range s.local {
		if !h.owner || s.opts.Data.rank() > 0 && !h.splitsWeight {
			continue
		}
		p, t, whole := h.param, h.w, to(h.param.Index)
		if n := elements(p.Whole); len(whole) != n {
			l.Fail(fmt.Errorf("%w: copy of %s: there is room for %d numbers of %d", ErrInput, p.Name, len(whole), n))
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

// HostWeight is the memory of a weight, on a device whose memory the host can address, of a
// stage without LowWeights. Whoever writes to it sees to it that no list reads it meanwhile.
func (s *Stage) HostWeight(param int) []float32 {
	return tensorops.Elements[float32](s.byParam[param].w)
}
