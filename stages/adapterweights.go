package stages

import (
	"fmt"
	"math"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// rowsAtOnce limits the elements of a weight that are read at a time for its norms.
const rowsAtOnce = 1 << 20

// AdapterWeights returns the Source of a new adapter of a model: A is random, B is 0, and the norms of DoRA are those of the weights'
// rows as the stages hold them, in the type of linear layers' frozen weights. All other weights come from the base.
func AdapterWeights(m *Model, base Source, seed uint64, held tensorops.DType) Source {
	initial := InitWeights(seed)
	weights := make(map[string]*Param)
	for _, p := range m.Params {
		weights[p.Name] = p
	}
	return func(p *Param, part string, dst []float32) error {
		module, norms := strings.CutSuffix(p.Name, AdapterMagnitude)
		switch {
		case !p.Adapter:
			return base(p, part, dst)
		case !norms || part != "":
			return initial(p, part, dst)
		}
		w := weights[module+".weight"]
		if w == nil {
			return fmt.Errorf("%w: %s has no weight %s.weight", ErrInput, p.Name, module)
		}
		return rowNorms(p, w, base, held, dst)
	}
}

// rowNorms fills dst with the norms of the rows of a weight [out, in] that belong to p's slice.
func rowNorms(p, w *Param, base Source, held tensorops.DType, dst []float32) (err error) {
	in := w.Whole[1]
	most := max(1, rowsAtOnce/in)
	p.Slice.Runs(p.Whole, func(at, row, n int) {
		for ; n > 0 && err == nil; n -= most {
			rows := *w
			k := min(most, n)
			rows.Slice = Slice{Dim: 0, Sections: 1, From: row, To: row + k}
			rows.Shape = []int{k, in}
			numbers := make([]float32, k*in)
			if err = base(&rows, "", numbers); err != nil {
				return
			}
			for i := range k {
				row := numbers[i*in : (i+1)*in]
				held.Round(row)
				var sum float64
				for _, v := range row {
					sum += float64(float64(v) * float64(v)) // not fused with the addition, as arm64 would
				}
				dst[at+i] = float32(math.Sqrt(sum))
			}
			at, row = at+k, row+k
		}
	})
	return err
}
