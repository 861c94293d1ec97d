package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// Saved is a tensor in host memory, under the name that checkpoints use.
type Saved struct {
	Name  string // a parameter's name; with the optimizer's part in front, as "m.…"
	Index int    // Param.Index
	Part  string // "": the weight
	Shape []int
	Data  []float32
}

// Source fills dst with a stored tensor. part is "" for the weight, or one of
// the optimizer's parts.
type Source func(p *Param, part string, dst []float32) error

// Draw is the Source of initial weights: a function of (seed, name, index).
func Draw(seed uint64) Source {
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
		rng.Normal(dst, rng.NewKey(seed, rng.StringStream("weight/"+p.Name)), 0, 0, p.Init.Std)
		return nil
	}
}

// Load records the upload of every weight, and of the optimizer's state where
// withState, from a source.
func (s *Stage) Load(l *tensorops.List, src Source, withState bool) error {
	for _, h := range s.mine {
		load := func(t tensorops.Tensor, part string) error {
			host := make([]float32, h.param.Len())
			if err := src(h.param, part, host); err != nil {
				return fmt.Errorf("load %s: %w", partName(part, h.param.Name), err)
			}
			l.Upload(t, tensorops.HostBytes(host))
			return nil
		}
		if err := load(h.w, ""); err != nil {
			return err
		}
		if !withState {
			continue
		}
		for i, part := range s.opts.Optimizer.Parts() {
			if err := load(h.state[i], part); err != nil {
				return err
			}
		}
	}
	return nil
}

// Save records copies, in host memory, of every weight that this rank answers
// for and of its optimizer state. They are filled when the list has completed.
func (s *Stage) Save(l *tensorops.List) []Saved {
	var out []Saved
	for _, h := range s.mine {
		if !h.owner {
			continue
		}
		save := func(t tensorops.Tensor, part string) {
			v := Saved{Name: partName(part, h.param.Name), Index: h.param.Index, Part: part, Shape: h.param.Shape, Data: make([]float32, h.param.Len())}
			l.Fetch(tensorops.HostBytes(v.Data), t)
			out = append(out, v)
		}
		save(h.w, "")
		for i, part := range s.opts.Optimizer.Parts() {
			if h.state[i].Valid() {
				save(h.state[i], part)
			}
		}
	}
	return out
}

// Grads records copies of the accumulated gradients, for tests and for people
// who look at them.
func (s *Stage) Grads(l *tensorops.List) []Saved {
	var out []Saved
	for _, h := range s.mine {
		for place, g := range h.g {
			if g.Valid() {
				v := Saved{Name: h.param.Name, Index: h.param.Index, Part: fmt.Sprintf("grad%d", place), Shape: h.param.Shape, Data: make([]float32, h.param.Len())}
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
