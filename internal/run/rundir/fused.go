package rundir

import (
	"fmt"
	"io"

	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// tensors returns the tensors of a checkpoint: the weights and the parts of the optimizer state.
// Where the model's files have several parameters in one tensor, it joins them. of makes the tensor
// of one parameter.
func (s *Saver) tensors(saved []stages.Saved, of func(stages.Saved) (safetensors.Tensor, error)) (model, optimizer []safetensors.Tensor,
	err error) {
	joined := make(map[string]*fused)
	for _, v := range saved {
		t, err := of(v)
		if err != nil {
			return nil, nil, err
		}
		to := &model
		if v.Part != "" {
			to = &optimizer
		}
		if v.Index >= len(s.params) || s.params[v.Index].Stored.Name == "" {
			*to = append(*to, t)
			continue
		}
		p := s.params[v.Index]
		name := p.StoredName()
		if v.Part != "" {
			name = v.Part + "." + name
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
