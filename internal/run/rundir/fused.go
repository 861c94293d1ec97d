package rundir

import (
	"fmt"
	"io"

	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// tensors returns the tensors of a checkpoint: the weights and the parts of the optimizer state.
// Where the model's files have several parameters in one tensor, or in another order, it joins or orders them; where they have
// one in several, it divides it. The scales of their state stay whole. of makes the tensor of one parameter or of a part.
func (s *Saver) tensors(saved []stages.Saved, of func(stages.Saved) (safetensors.Tensor, error)) (model, optimizer []safetensors.Tensor,
	err error) {
	joined, spreads := make(map[string]*fused), make(map[string]*spread)
	for _, v := range saved {
		to := &model
		if v.Part != "" {
			to = &optimizer
		}
		var p *stages.Param
		if v.Index < len(s.params) {
			p = s.params[v.Index]
		}
		if p != nil && len(p.Parts) > 0 && !stages.IsScale(v.Part) {
			for _, one := range divided(v, p) {
				t, err := of(one)
				if err != nil {
					return nil, nil, err
				}
				*to = append(*to, t)
			}
			continue
		}
		t, err := of(v)
		if err != nil {
			return nil, nil, err
		}
		if p == nil || p.Stored.Name == "" || stages.IsScale(v.Part) {
			*to = append(*to, t)
			continue
		}
		name := p.StoredName()
		if v.Part != "" {
			name = v.Part + "." + name
		}
		if p.Stored.Strides != nil {
			s := spreads[name]
			if s == nil {
				s = &spread{shape: p.StoredShape()}
				spreads[name] = s
				*to = append(*to, safetensors.Tensor{Name: name, DType: t.DType, Shape: s.shape, Stream: s.write})
			}
			s.parts = append(s.parts, spreadPart{t, p.StoredParts()[0]})
			continue
		}
		f := joined[name]
		if f == nil {
			f = new(fused)
			joined[name] = f
			*to = append(*to, safetensors.Tensor{Name: name, DType: t.DType, Shape: p.StoredShape(), Stream: f.write})
		}
		if len(f.parts) > 0 && f.parts[0].DType != t.DType {
			return nil, nil, fmt.Errorf("%s: its parts have the types %s and %s", name, f.parts[0].DType, t.DType)
		}
		f.parts = append(f.parts, t)
	}
	return model, optimizer, nil
}

// divided returns what the model's files have in several tensors, one by one.
func divided(v stages.Saved, p *stages.Param) (all []stages.Saved) {
	for _, part := range p.StoredParts() {
		one := v
		if one.Name, one.Shape = part.Name, part.Shape; v.Part != "" {
			one.Name = v.Part + "." + part.Name
		}
		first, last := part.First, part.First+part.Len
		if v.Data != nil {
			one.Data = v.Data[first:last:last]
		}
		if v.Narrow != nil {
			size := v.DType.Size()
			one.Narrow = v.Narrow[size*first : size*last : size*last]
		}
		all = append(all, one)
	}
	return all
}

// fused is a tensor made of the rows of others, in order.
type fused struct{ parts []safetensors.Tensor }

func (f *fused) write(w io.Writer) error {
	for _, t := range f.parts {
		if t.Stream == nil {
			if _, err := w.Write(t.Data); err != nil {
				return err
			}
			continue
		}
		if err := t.Stream(w); err != nil {
			return err
		}
	}
	return nil
}
