package stages

import "github.com/troupe-ml/troupe/tensorops"

// rounds reports whether what travels between chunks is of another type than within them.
func (s *Stage) rounds() bool {
	return s.opts.Wire == tensorops.BFloat16 && s.opts.Residual == tensorops.Float32 && s.model.language()
}

// EdgeType is the type of what travels between the chunks of a language model.
func (s *Stage) EdgeType() tensorops.DType { return s.opts.EdgeType() }

// EdgeType is the type of what travels between the chunks of a language model.
func (o *Options) EdgeType() tensorops.DType {
	if o.Wire == tensorops.BFloat16 {
		return tensorops.BFloat16
	}
	return o.Residual
}

// fromEdge makes of what came from other chunks, which it owns, tensors of the residual stream's type.
func (s *Stage) fromEdge(l *tensorops.List, ts []tensorops.Tensor) []tensorops.Tensor {
	return s.retyped(l, ts, tensorops.Float32)
}

// toEdge makes of what goes to other chunks, which it owns, tensors of the edges' type.
func (s *Stage) toEdge(l *tensorops.List, ts []tensorops.Tensor) []tensorops.Tensor {
	return s.retyped(l, ts, tensorops.BFloat16)
}

func (s *Stage) retyped(l *tensorops.List, ts []tensorops.Tensor, to tensorops.DType) []tensorops.Tensor {
	if !s.rounds() {
		return ts
	}
	for i, t := range ts {
		if !t.Valid() {
			continue
		}
		ts[i] = l.Alloc(to, t.Shape()...)
		l.Copy(ts[i], t)
		l.Free(t)
	}
	return ts
}
