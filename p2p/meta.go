package p2p

import (
	"context"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

func errParts(it *item, p *Port) error {
	size := 1
	if p.cfg.Scatter != nil {
		size = p.cfg.Scatter.Size()
	}
	return fmt.Errorf("%w: a part of %d elements of shape %v in a group of %d ranks; both stages need Scatter groups of the same size",
		ErrUnexpected,
		it.Len(), it.whole, size)
}

// SendTensorMeta sends the types and shapes of tensors to the next stage, as ColossalAI's programs do before the
// first tensor. No transfer here needs it, because each describes its tensors. With need false it does nothing. again
// is false after a success: no further call is needed.
func (p *Port) SendTensorMeta(ctx context.Context, need bool, specs []Spec, c Call) (again bool, err error) {
	if !need {
		return false, nil
	}
	if err := checkSpecs(specs); err != nil {
		return true, fmt.Errorf("stage %d: %w", p.rank, err)
	}
	numbers := metaOf(specs)
	t, err := tensorops.NewTensor(p.cfg.Arena, tensorops.Int32, len(numbers))
	if err != nil {
		return true, err
	}
	copy(tensorops.Elements[int32](t), numbers)
	_, err = p.SendForward([]tensorops.Tensor{t}, c).Wait(ctx)
	return err != nil, err
}

// RecvTensorMeta receives the specs from SendTensorMeta. If known is not nil, it returns known and receives nothing.
func (p *Port) RecvTensorMeta(ctx context.Context, known []Spec, c Call) ([]Spec, error) {
	if known != nil {
		return known, nil
	}
	got, err := p.RecvForward(c).Wait(ctx)
	if err != nil || len(got.Forward) == 0 {
		return nil, err
	}
	defer release(got.Forward)
	t := got.Forward[0]
	if t.DType() != tensorops.Int32 || t.Len() == 0 {
		return nil, fmt.Errorf("stage %d: %w: got %v instead of types and shapes", p.rank, ErrUnexpected, t)
	}
	specs, ok := readMeta(tensorops.Elements[int32](t))
	if !ok {
		return nil, fmt.Errorf("stage %d: %w: the %d numbers are not types and shapes", p.rank, ErrUnexpected, t.Len())
	}
	return specs, nil
}

// checkSpecs refuses types and shapes that no tensor can have, and more of them than a message can have.
func checkSpecs(specs []Spec) error {
	if len(specs) > LimitTensors {
		return fmt.Errorf("%w: %d tensors; a message has at most %d", tensorops.ErrShape, len(specs), LimitTensors)
	}
	for i, s := range specs {
		if !s.DType.Known() || len(s.Shape) > tensorops.MaxRank || slices.ContainsFunc(s.Shape,
			func(d int) bool { return d < 0 || d > tensorops.MaxDim }) {
			return fmt.Errorf("%w: %v of tensor %d of %d is not a valid type and shape; want up to %d dimensions of 0 to %d elements",
				tensorops.ErrShape, s,
				i+1, len(specs), tensorops.MaxRank, tensorops.MaxDim)
		}
	}
	return nil
}

func metaOf(specs []Spec) []int32 {
	numbers := []int32{int32(len(specs))}
	for _, s := range specs {
		numbers = append(numbers, int32(s.DType), int32(len(s.Shape)))
		for _, d := range s.Shape {
			numbers = append(numbers, int32(d))
		}
	}
	return numbers
}

func readMeta(n []int32) ([]Spec, bool) {
	specs, rest, ok := parseMeta(n)
	return specs, ok && len(rest) == 0
}

// readMetaPrefix is readMeta for numbers that zeros may follow.
func readMetaPrefix(n []int32) ([]Spec, bool) {
	specs, _, ok := parseMeta(n)
	return specs, ok
}

func parseMeta(n []int32) (_ []Spec, rest []int32, ok bool) {
	if n[0] < 0 || n[0] > LimitTensors {
		return nil, nil, false
	}
	specs, n := make([]Spec, n[0]), n[1:]
	for i := range specs {
		if len(n) < 2 || n[1] < 0 || n[1] > tensorops.MaxRank || len(n) < 2+int(n[1]) || n[0] < 0 || n[0] > 255 ||
			!tensorops.DType(n[0]).Known() {
			return nil, nil, false
		}
		specs[i] = Spec{DType: tensorops.DType(n[0])}
		for _, d := range n[2 : 2+n[1]] {
			if d < 0 {
				return nil, nil, false
			}
			specs[i].Shape = append(specs[i].Shape, int(d))
		}
		n = n[2+n[1]:]
	}
	return specs, n, true
}
