package stages

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Frozen weights need no gradients, so they may take fewer bytes than trained ones: Options.FrozenDType. Weights of linear layers
// are bfloat16 or quantized; embeddings and the head's weight are bfloat16 at the least, as bitsandbytes leaves the head out.
// Vectors stay float32.
//
// A quantized weight is stored as [out, in], so the numbers that share a scale are inputs of one output. Its blocks are those of the whole
// weight: a rank whose inputs begin or end within a block also stores the rest of that block. So every layout has the same
// numbers.

// weightTypes returns the types of weights, by Param.Index, that are not float32.
func (s *Stage) weightTypes() map[int]tensorops.DType {
	types := make(map[int]tensorops.DType)
	if s.opts.BF16 {
		// Every result of these is rounded to bfloat16 anyway.
		all := s.opts.LowWeights && s.opts.Inference
		s.eachFactor(func(p *Param, embeds, _ bool) {
			if (all || p.Frozen) && (!embeds || s.opts.Residual == tensorops.BFloat16) {
				types[p.Index] = tensorops.BFloat16
			} else {
				delete(types, p.Index)
			}
		})
	}
	if s.opts.FrozenDType != tensorops.Float32 {
		s.eachFactor(func(p *Param, embeds, isHead bool) {
			switch {
			case !p.Frozen:
			case embeds || isHead:
				types[p.Index] = tensorops.BFloat16
			default:
				types[p.Index] = s.opts.FrozenDType
			}
		})
	}
	return types
}

// eachFactor calls f for the weight of every linear layer and of every expert, and then for every embedding.
func (s *Stage) eachFactor(f func(p *Param, embeds, isHead bool)) {
	for _, c := range s.order {
		for _, l := range c.layers {
			_, isHead := l.(*head)
			for _, m := range l.linears() {
				f(m.w.param, false, isHead)
			}
			if b := blockOf(l); b != nil {
				if x, ok := b.ffn.(*expertFFN); ok {
					for _, u := range []use{x.gate, x.up, x.down} {
						f(u.param, false, true) // not quantized, as the head's
					}
				}
			}
		}
	}
	for _, c := range s.order {
		for _, l := range c.layers {
			switch l := l.(type) {
			case *embedding:
				f(l.tokens.param, true, false)
				if l.inputs != nil {
					f(l.inputs.table.param, true, false)
				}
			case *mtp:
				f(l.tokens.param, true, false)
			}
		}
	}
}

// blocks is the memory of a quantized weight.
type blocks struct {
	all   tensorops.Tensor // [out, in], of which the weight is columns
	part  *Param           // the part of the whole weight that all has
	inOut bool             // the part is stored as [in, out]
}

// inOuts returns the linear layers' weights, by Param.Index, that are stored as [in, out].
func (s *Stage) inOuts() map[int]bool {
	all := make(map[int]bool)
	s.eachLinear(func(m *linear, _ *localParam) { all[m.w.param.Index] = m.inOut })
	return all
}

// allocBlocks allocates a quantized weight.
func (s *Stage) allocBlocks(l *tensorops.List, h *localParam, dtype tensorops.DType, inOut bool) {
	in, out := 1, 0
	if inOut {
		in, out = 0, 1
	}
	part := *h.param
	lo, hi := 0, part.Shape[in]
	if cut := &part.Slice; cut.Sections > 0 && cut.Dim == in { // inputs have one section
		const n = tensorops.QuantBlock
		first := cut.From / n * n
		lo, hi = cut.From-first, cut.To-first
		cut.From, cut.To = first, min((cut.To+n-1)/n*n, part.Whole[in])
		part.Shape = cut.Shape(part.Whole)
	}
	h.blocks = &blocks{l.Alloc(dtype, part.Shape[out], part.Shape[in]), &part, inOut}
	h.w = h.blocks.all.Columns(lo, hi)
}

// heldInOut reports whether the stage holds a linear layer's weight as [in, out].
func (m *linear) heldInOut(s *Stage) bool { return m.inOut && s.byParam[m.w.param.Index].blocks == nil }

// loadLen is about how many numbers of a weight are converted at a time.
const loadLen = 1 << 20

// loadRows returns how many numbers of a part of a weight are converted at a time: whole rows.
func loadRows(p *Param, whole bool) int {
	if n := p.Len(); whole || n <= loadLen {
		return n
	}
	cols := p.Shape[len(p.Shape)-1]
	if len(p.Shape) < 2 {
		cols = 1
	}
	return max(1, loadLen/cols) * cols
}

// hostLen returns the numbers of host memory that loading a weight takes.
func (s *Stage) hostLen(h *localParam) int {
	switch {
	case h.blocks != nil:
		return loadRows(h.blocks.part, h.blocks.inOut)
	case !h.splitsWeight && h.w.DType() != tensorops.Float32:
		return loadRows(h.param, false)
	}
	return h.param.Len()
}

// loadNarrow fills a weight of another type than float32, some rows at a time: neither the host nor the device has all of it in
// float32.
func (s *Stage) loadNarrow(h *localParam, src Source, host []float32) (err error) {
	p, to, whole := h.param, h.w, false
	if b := h.blocks; b != nil {
		p, to, whole = b.part, b.all, b.inOut
	}
	n, step := p.Len(), loadRows(p, whole)
	for at := 0; at < n; at += step {
		next := min(at+step, n)
		part, numbers := *p, host[:next-at]
		if next-at < n {
			part.more = next < n
			part.Slice, part.Shape = p.Slice.Range(p.Slice.First+at, p.Slice.First+next), []int{next - at}
		}
		if err = src(&part, "", numbers); err != nil {
			break
		}
		if whole {
			numbers = transposed(numbers, p.Shape[0], p.Shape[1])
		}
		if err = s.convert(to, at, numbers); err != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", p.Name, err)
	}
	return nil
}

// convert stores numbers at a place of a weight.
func (s *Stage) convert(to tensorops.Tensor, at int, numbers []float32) error {
	l := s.stream.NewList()
	wide := s.wideFor(l, to, len(numbers))
	l.Upload(wide, tensorops.HostBytes(numbers))
	if to.DType().Quantized() {
		row := at / to.Cols()
		l.Copy(to.RowRange(row, row+wide.Rows()), wide)
	} else {
		l.Copy(to.Part(at, len(numbers)), wide)
	}
	l.Free(wide)
	return tensorops.Run(s.stream, l)
}

// wideFor allocates memory for numbers of a weight in float32.
func (s *Stage) wideFor(l *tensorops.List, to tensorops.Tensor, n int) tensorops.Tensor {
	if to.DType().Quantized() {
		return l.Alloc(tensorops.Float32, n/to.Cols(), to.Cols())
	}
	return l.Alloc(tensorops.Float32, n)
}

// transposed returns a matrix with its rows as columns.
func transposed(x []float32, rows, cols int) []float32 {
	t := make([]float32, len(x))
	for i := range rows {
		for j, v := range x[i*cols:][:cols] {
			t[j*rows+i] = v
		}
	}
	return t
}

// errQuantized: a quantized weight is not saved or copied, since its numbers would not be those that it was made of.
var errQuantized = errors.New("weights in 8 or 4 bits are not stored: use those of model.from")
