package stages

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// TensorParallel describes the group of ranks that share the layers of a stage. Each rank of the
// group holds a slice of every large parameter (Param.Split), computes with it, and adds its
// results to those of the others. Of experts it has a part of each (see experttensor.go), or with
// ExpertParallel.Whole some whole ones. All ranks
// record the same passes in the same order. With the zero value the stage holds whole layers.
//
// A sum over ranks is rounded in another order than that of one product. So the size of the group
// changes the last bits of the result; they are the same in every run.
type TensorParallel struct {
	Group tensorops.Group
	// Sequence splits, by positions, the tensors that every rank would otherwise hold whole: the
	// residual stream, and with it norms, dropout and the tensors between chunks. Each rank has an
	// equal range of each sequence's positions, in the order of the ranks.
	Sequence bool
}

func (t TensorParallel) size() int {
	if t.Group == nil {
		return 1
	}
	return t.Group.Size()
}

func (t TensorParallel) rank() int {
	if t.Group == nil {
		return 0
	}
	return t.Group.Rank()
}

// CheckTensor checks that size ranks can share the model's layers. The error is ErrModel.
func (m *Model) CheckTensor(size int) error { return m.checkTensor(size, false) }

// CheckWholeExperts is CheckTensor for ranks that have whole experts: see ExpertParallel.Whole.
func (m *Model) CheckWholeExperts(size int) error { return m.checkTensor(size, true) }

func (m *Model) checkTensor(size int, whole bool) error {
	c := m.Config
	switch {
	case size <= 1:
		return nil
	case !m.language():
		var own []string
		for _, name := range m.Names() {
			if name != "" {
				own = append(own, fmt.Sprintf("%q", name))
			}
		}
		return fmt.Errorf("%w: tensor parallelism of %d: the layers of family %q (%s) cannot be split, only those of %s",
			ErrModel, size, c.Family, strings.Join(own, ", "), strings.Join(LanguageFamilies(), ", "))
	case m.passing.any():
		return fmt.Errorf("%w: tensor parallelism of %d: it is not supported with %s: use pipeline or data parallelism", ErrModel,
			size, c.passed())
	case c.Heads%size != 0:
		return fmt.Errorf("%w: tensor parallelism of %d: the %d heads are not a multiple of it", ErrModel, size, c.Heads)
	case c.KVHeads%size != 0 && size%c.KVHeads != 0:
		return fmt.Errorf("%w: tensor parallelism of %d: it must divide the %d kv_heads or be a multiple of them", ErrModel, size, c.KVHeads)
	case !c.Delta.none() && c.Delta.KeyHeads%size != 0:
		return fmt.Errorf("%w: tensor parallelism of %d: the %d key heads of the %s are not a multiple of it", ErrModel, size,
			c.Delta.KeyHeads, deltaSwitch)
	case c.FFN < size || c.Vocab < size:
		return fmt.Errorf("%w: tensor parallelism of %d exceeds the ffn of %d or the vocabulary of %d", ErrModel, size, c.FFN, c.Vocab)
	}
	return m.checkExpertWidths(size, whole)
}

// shard returns the model of one rank of the groups: the same layers and parameters, with the sizes
// of its slices.
func (m *Model) shard(t TensorParallel, x ExpertParallel) (*Model, error) {
	if err := errors.Join(m.checkTensor(t.size(), x.Whole), m.CheckExperts(x.size())); err != nil || t.size() <= 1 && x.size() <= 1 {
		return m, err
	}
	if r := t.rank(); r < 0 || r >= t.size() {
		return nil, fmt.Errorf("%w: rank %d does not exist in a tensor-parallel group of %d", ErrModel, r, t.size())
	}
	part := &Model{Config: m.Config, tensor: t, expert: x}
	languageOf(m.Config.Family).build(part)
	if err := part.adapt(); err != nil {
		return nil, err
	}
	part.wires, part.values, part.froze = m.wires, m.values, m.froze
	for i, p := range part.Params {
		p.Frozen, p.Hidden = m.Params[i].Frozen, m.Params[i].Hidden
	}
	return part, nil
}

// ShardParameters is ParametersOf for one rank of a tensor-parallel group.
func (m *Model) ShardParameters(chunks []ChunkSpec, rank, size int) (int64, error) {
	part, err := m.shard(TensorParallel{Group: tensorops.DryGroup{Place: rank, Members: size}}, ExpertParallel{})
	if err != nil {
		return 0, err
	}
	return part.ParametersOf(chunks), nil
}

// gradSum says whether the ranks' gradients of one parameter are parts of a sum.
type gradSum uint8

const (
	alike      gradSum = iota // every rank computes the same gradient, or has its own slice
	bySequence                // parts if the ranks have different positions
	byHeads                   // always parts: the ranks have different heads, or parts of experts
)

// summed reports whether a parameter's gradients have to be added over the ranks.
func (s *Stage) summed(p *Param) bool {
	t := s.opts.Tensor
	return t.size() > 1 && !p.Frozen && (p.sum == byHeads || p.sum == bySequence && t.Sequence || p.Split.replicas(t.size()) > 1)
}

// bucketLen limits the number of elements that one collective adds, except for a single larger
// parameter.
const bucketLen = 4 << 20

// sumGrads records the sums over the ranks of the gradients that are parts, before anything reads
// them. Many small ones share a collective. If only some ranks have a slice, it is added as part of
// the whole, which is zero elsewhere.
func (s *Stage) sumGrads(l *tensorops.List) {
	var bucket []partGrad
	n := 0
	for _, h := range s.local {
		if !s.summed(h.param) {
			continue
		}
		for _, g := range s.partGrads(h) {
			if n > 0 && n+g.len() > bucketLen {
				s.sumBucket(l, bucket, n)
				bucket, n = bucket[:0], 0
			}
			bucket, n = append(bucket, g), n+g.len()
		}
	}
	if n > 0 {
		s.sumBucket(l, bucket, n)
	}
}

// partGrad is a gradient of which the ranks of a tensor group have parts of a sum: some rows of a matrix of rows·cols.
type partGrad struct {
	grad             tensorops.Tensor
	rows, cols       int
	firstRow, endRow int
}

func (g partGrad) len() int { return g.rows * g.cols }

// partGrads returns the gradients of a parameter: if an expert group divides it, those of each source, of which all ranks of the tensor
// group have the same rows.
func (s *Stage) partGrads(h *localParam) (all []partGrad) {
	p := h.param
	if s.divided(p) {
		for _, g := range h.bySource {
			all = append(all, partGrad{g, p.Shape[0], p.Len() / p.Shape[0], 0, p.Shape[0]})
		}
		return all
	}
	g := partGrad{h.g[h.place()], p.Whole[0], elements(p.Whole) / p.Whole[0], p.Slice.From, p.Slice.To}
	if p.Slice.whole() {
		g.firstRow, g.endRow = 0, g.rows
	}
	return []partGrad{g}
}

func (s *Stage) sumBucket(l *tensorops.List, bucket []partGrad, n int) {
	sums := l.Alloc(tensorops.Float32, n)
	l.Fill(sums, 0)
	at := 0
	views := make([]tensorops.Tensor, len(bucket))
	for i, g := range bucket {
		views[i] = sums.Part(at, g.rows, g.cols).RowRange(g.firstRow, g.endRow).View(g.grad.Shape()...)
		at += g.len()
		l.Copy(views[i], g.grad)
	}
	l.AllReduce(sums, tensorops.Sum, s.opts.Tensor.Group)
	for i, g := range bucket {
		l.Copy(g.grad, views[i])
	}
	l.Free(sums)
}

// answers reports whether this rank reports a parameter's norm and saves it: the first of the ranks
// with the same slice. Of whole experts each rank reports its part.
func (s *Stage) answers(p *Param) bool {
	t := s.opts.Tensor
	return t.size() <= 1 || p.experts && s.opts.wholeExperts() || t.rank() == 0 ||
		p.Split.Units > 0 && t.rank()%p.Split.replicas(t.size()) == 0
}

// elements returns the number of elements of a shape.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// cut says how a parameter is split and, on a rank of a group, turns it into that rank's slice.
func (m *Model) cut(u use, s Split) use {
	p := u.param
	p.Split = s
	if t := m.tensor; t.size() > 1 {
		p.Slice = s.Slice(p.Whole, t.rank(), t.size())
		p.Shape = p.Slice.Shape(p.Whole)
	}
	return u
}

// parted marks a parameter whose gradients are parts of a sum.
func parted(u use, how gradSum) use {
	u.param.sum = how
	return u
}

// byColumns splits a linear layer by its outputs, and so the bias.
func (m *Model) byColumns(l linear, sections, units int) linear {
	out := 0
	if l.inOut {
		out = 1
	}
	l.w = m.cut(l.w, Split{out, sections, units})
	if l.hasBias {
		l.b = m.cut(l.b, Split{0, sections, units})
	}
	l.out = l.w.param.Shape[out]
	return l
}

// byRows splits a linear layer by its inputs: a rank's product is a part of a sum, to which one
// rank adds the bias.
func (m *Model) byRows(l linear, units int) linear {
	in, out := 1, 0
	if l.inOut {
		in, out = 0, 1
	}
	l.w = m.cut(l.w, Split{in, 1, units})
	l.out, l.noBias = l.w.param.Shape[out], m.tensor.rank() > 0
	return l
}

// vocabSplit splits an embedding or a head by rows.
func vocabSplit(c Config) Split { return Split{0, 1, c.Vocab} }
