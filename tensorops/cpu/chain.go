package cpu

import "github.com/troupe-ml/troupe/tensorops"

// chainLen is the number of elements on which all operations of a chain work before the next: those of a few operands fit a core's
// own cache.
const chainLen = 8192

// chainOf are the operations at the beginning of a list, from an AddScaled on, that work element by element on as many elements. One after
// the other they are carried out on some elements at a time, which then come from memory once. The bits are those of whole operations:
// operands share no memory, unless they are the same elements in the same places.
func chainOf(ops []tensorops.Op) []tensorops.Op {
	if ops[0].Kind != tensorops.KindAddScaled {
		return nil
	}
	var touched []tensorops.Tensor
	n := ops[0].AddScaled().Y.Len()
	for i := range ops {
		operands, ok := ofElements(&ops[i])
		if !ok || operands[0].Len() != n {
			return ops[:i]
		}
		for _, t := range operands {
			if !t.Valid() {
				continue
			}
			for _, other := range touched {
				if meet(t, other) && !sameElements(t, other) {
					return ops[:i]
				}
			}
			touched = append(touched, t)
		}
	}
	return ops
}

// ofElements returns the operands of an operation that a chain may have. They have the same number of elements, without gaps.
func ofElements(op *tensorops.Op) (operands [3]tensorops.Tensor, ok bool) {
	switch op.Kind {
	case tensorops.KindAddScaled:
		a := op.AddScaled()
		operands = [3]tensorops.Tensor{a.Y, a.X, a.Skip}
	case tensorops.KindCopy:
		a := op.Copy()
		operands = [3]tensorops.Tensor{a.Dst, a.Src}
	case tensorops.KindFill:
		operands[0] = op.Fill().T
	default:
		return operands, false
	}
	for _, t := range operands {
		if t.Valid() && (t.DType() != tensorops.Float32 && t.DType() != tensorops.BFloat16 || !t.Contiguous()) {
			return operands, false
		}
	}
	return operands, true
}

func (x *exec) runChain(ops []tensorops.Op) error {
	x.chain = ops
	err := x.parallel(ops[0].AddScaled().Y.Len(), lightGrain, chainRange)
	x.chain = nil
	return err
}

func chainRange(x *exec, lo, hi int) {
	for ; lo < hi; lo += chainLen {
		end := min(lo+chainLen, hi)
		for i := range x.chain {
			switch op := &x.chain[i]; op.Kind {
			case tensorops.KindAddScaled:
				x.addScaled(op.AddScaled(), lo, end)
			case tensorops.KindCopy:
				a := op.Copy()
				x.convert(x.values(0, a.Dst), lo, x.values(1, a.Src), lo, end-lo)
			case tensorops.KindFill:
				fillFloats(op.Fill(), lo, end)
			}
		}
	}
}
