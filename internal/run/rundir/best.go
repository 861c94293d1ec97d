package rundir

import (
	"context"
	"fmt"
	"maps"
	"sort"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// BestIn makes WriteBest store matrices in the number type in which the run computes. In bfloat16 the
// run computes with rounded matrices, so these are the numbers that were validated. Vectors, such as
// those of norms, stay in float32.
func (s *Saver) BestIn(dtype string, model stages.Config, kept Kept) (err error) {
	if s.narrow = dtype == "bfloat16" && !s.part; !s.narrow { // the parameters of an adapter are few
		return nil
	}
	s.best = maps.Clone(s.static)
	s.best[ModelFile], err = model.HFOver(kept.Model, dtype)
	return err
}

// WriteBest writes the weights of the best validation so far, and returns their folder.
func (s *Saver) WriteBest(ctx context.Context, state trainstate.State, saved []stages.Saved) (string, error) {
	sort.SliceStable(saved, func(i, j int) bool { return saved[i].Index < saved[j].Index })
	c := checkpoint.Content{Step: int(state.Step), Part: s.part}
	var err error
	c.Model, _, err = s.tensors(saved, func(v stages.Saved) (safetensors.Tensor, error) {
		if s.narrow && v.DType != tensorops.BFloat16 && len(v.Shape) > 1 {
			// The conversion takes place while the file is written, a tensor at a time.
			return safetensors.Converted(v.Name, "BF16", v.Shape, "F32", v.Bytes())
		}
		return tensorOf(v), nil
	})
	if err != nil {
		return "", fmt.Errorf("the best weights, of step %d: %w", state.Step, err)
	}
	static := s.static
	if s.best != nil {
		static = s.best
	}
	if c.Files, err = files(static, state); err != nil {
		return "", err
	}
	dir, err := s.store.SaveBest(ctx, c)
	if err == nil {
		err = s.store.PruneBest(int(s.BestStep))
	}
	return dir, err
}
