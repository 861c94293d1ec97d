package actors

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// join assembles a tensor from the slices of the ranks of tensor groups and, with ZeRO, of
// replicas: a checkpoint has whole tensors, whichever ranks wrote it.
func join(saved []stages.Saved) ([]stages.Saved, error) {
	out, at, filled := saved[:0:0], make(map[string]int), make(map[string]int)
	for _, v := range saved {
		if v.Whole == nil {
			out = append(out, v)
			continue
		}
		i, known := at[v.Name]
		if !known {
			i, at[v.Name] = len(out), len(out)
			out = append(out, wholeOf(v))
		}
		n := len(v.Data)
		if whole := &out[i]; v.DType != tensorops.Float32 && whole.DType == v.DType {
			size := v.DType.Size()
			n = len(v.Narrow) / size
			if err := v.Slice.PutNarrow(whole.Narrow, v.Narrow, size, v.Whole); err != nil {
				return nil, fmt.Errorf("%s: %w", v.Name, err)
			}
		} else if err := v.Slice.Put(whole.Data, v.Data, v.Whole); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		filled[v.Name] += n
	}
	for name, i := range at {
		if n := len(out[i].Bytes()) / out[i].DType.Size(); filled[name] != n {
			return nil, fmt.Errorf("%w: the ranks have only %d of the %d numbers of %s", stages.ErrInput, filled[name], n, name)
		}
	}
	return out, nil
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// wholeOf returns the tensor of which v is a slice, with memory for all of it.
func wholeOf(v stages.Saved) stages.Saved {
	n := elements(v.Whole)
	v.Shape, v.Whole, v.Slice = v.Whole, nil, stages.Slice{}
	if v.DType == tensorops.Float32 {
		v.Data = make([]float32, n)
	} else {
		v.Narrow = make([]byte, v.DType.Size()*n)
	}
	return v
}
