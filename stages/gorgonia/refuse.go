package gorgonia

import (
	"fmt"
	"reflect"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Refusal is an operation that a layer must not have.
type Refusal struct {
	Op     string // as Gorgonia's functions name it
	Reason string

	match func(op G.Op, operands []tensor.Shape) bool
	// result: what it computes is wrong, not only its gradient. Then gradients that need it
	// are refused as well.
	result bool
}

// Refused lists the operations that a graph is refused for, apart from those that Gorgonia
// itself has no symbolic gradient of (At, DiagFlat, GlobalAveragePool2D).
func Refused() []Refusal { return slices.Clone(refusals) }

// refusals are of Gorgonia 0.9.18; TestOps has what each does wrong.
var refusals = []Refusal{
	{Op: "InverseSqrt", match: unaryIs("invSqrt"),
		Reason: "its gradient is wrong: use Inverse of Sqrt"},
	{Op: "Log2", match: unaryIs("log2"),
		Reason: "its gradient is wrong: use Log, times 1/ln 2"},
	{Op: "OuterProd", match: func(op G.Op, _ []tensor.Shape) bool { return typeName(op) == "linAlgBinOp" && op.String() == outerProd },
		Reason: "its gradient is wrong: use Mul of a column, reshaped to (n, 1), by a row"},
	{Op: "AveragePool1D and AveragePool2D", match: typeIs("avgPoolOp"),
		Reason: "its gradient is wrong: use Reshape and Mean, or Conv2d with a constant filter"},
	{Op: "Sparsemax", match: typeIs("sparsemaxOp"),
		Reason: "its gradient is wrong but along the last axis of a matrix, and it fails for other ranks: use SoftMax"},
	{Op: "ByIndices along another axis than the first, from 3 dimensions on", match: func(op G.Op, in []tensor.Shape) bool {
		return typeName(op) == "byIndicesOp" && intsOf(op, "axis")[0] > 0 && len(in[0]) > 2
	}, Reason: "its gradient is wrong: Transpose or Reshape, so that the axis is the first"},
	{Op: "Sum, Mean, Max, Norm or a broadcast along an inner axis from the third on", result: true, match: reducesInner,
		Reason: "Gorgonia adds up the wrong numbers: Reshape first, so that the axis is the first, the second or the last"},
	{Op: "Slice with a step", result: true, match: func(op G.Op, _ []tensor.Shape) bool {
		s, ok := op.(interface{ IsSlice() tensor.Slice })
		return ok && s.IsSlice() != nil && s.IsSlice().Step() > 1
	}, Reason: "it fails for many shapes: Reshape, and Slice without a step"},
	{Op: "BatchNorm", match: typeIs("BatchNormOp"),
		Reason: "its result depends on the microbatches that the graph had before: compose it of Mean, Square and Sqrt"},
	{Op: "GroupNorm", match: typeIs("GroupNormOp"),
		Reason: "it prints its gradient at every backward pass: compose it of Mean, Square and Sqrt"},
	{Op: "Dropout", match: typeIs("dropoutOp"),
		Reason: "its numbers are drawn from the clock, so that no run could be repeated: take a mask as an input of the layer"},
	{Op: "random nodes", match: typeIs("randomOp"),
		Reason: "their numbers are drawn from the clock, so that no run could be repeated: take them as an input of the layer"},
	{Op: "Read and Let", match: func(op G.Op, _ []tensor.Shape) bool { return typeName(op) == "readOp" || typeName(op) == "letOp" },
		Reason: "a layer hands its results out as outputs"},
}

// intsOf reads an operation's field that is an int or a slice of them.
func intsOf(op G.Op, field string) []int {
	f := reflect.Indirect(reflect.ValueOf(op)).FieldByName(field)
	switch {
	case !f.IsValid():
		return nil
	case f.Kind() == reflect.Int:
		return []int{int(f.Int())}
	}
	ints := make([]int, f.Len())
	for i := range ints {
		ints[i] = int(f.Index(i).Int())
	}
	return ints
}

// reducesInner matches reductions along an axis that has two or more before it and one or
// more after it. Gorgonia reduces one axis after the other, the first one first.
func reducesInner(op G.Op, in []tensor.Shape) bool {
	if name := typeName(op); name != "sumOp" && name != "maxOp" {
		return false
	}
	along, dims := intsOf(op, "along"), len(in[0])
	if len(along) == dims {
		return false // all at once
	}
	slices.Sort(along)
	for done, axis := range along {
		if axis -= done; axis >= 2 && axis < dims-done-1 {
			return true
		}
	}
	return false
}

// unaryIs matches an elementwise operation by Gorgonia's name of it.
func unaryIs(name string) func(G.Op, []tensor.Shape) bool {
	return func(op G.Op, _ []tensor.Shape) bool {
		return typeName(op) == "elemUnaryOp" && op.(fmt.Stringer).String() == name
	}
}

// typeIs matches an operation by the name of its Go type: those are not exported.
func typeIs(name string) func(G.Op, []tensor.Shape) bool {
	return func(op G.Op, _ []tensor.Shape) bool { return typeName(op) == name }
}

func typeName(op G.Op) string {
	t := reflect.TypeOf(op)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// constantInPieces reports whether an operation's gradient is zero wherever it has one:
// comparisons, signs, roundings and sizes.
func constantInPieces(n *G.Node) bool {
	switch typeName(n.Op()) {
	case "sizeOp":
		return true
	case "elemBinOp":
		return !slices.Contains(n.Op().(G.SDOp).DiffWRT(2), true)
	case "elemUnaryOp":
		return !slices.Contains(n.Op().(G.SDOp).DiffWRT(1), true)
	}
	return false
}

// checkForward refuses nodes of the user's graph.
func (b *graph) checkForward(nodes []*G.Node, float tensor.Dtype) error {
	for _, n := range nodes {
		if n.Op() == nil {
			if !slices.Contains(b.in, n) && !slices.Contains(b.params, n) {
				return fmt.Errorf("%w: node %q is neither an input nor a parameter of the layer: make a constant of it (gorgonia.NewConstant), or declare it", ErrGraph, n.Name())
			}
			continue
		}
		if err := b.refuse(n, false); err != nil {
			return err
		}
		switch dtype := n.Dtype(); dtype {
		case float, tensor.Int, tensor.Bool:
		default:
			return fmt.Errorf("%w: %v gives %v: a layer's graph is of %v, tensor.Int and bool", ErrGraph, n.Op(), dtype, float)
		}
	}
	return nil
}

// refuse looks for a refusal of a node, or of a node of the gradients.
func (b *graph) refuse(n *G.Node, gradient bool) error {
	var operands []tensor.Shape
	for _, child := range b.children(n) {
		operands = append(operands, child.Shape())
	}
	for _, r := range refusals {
		if (r.result || !gradient) && r.match(n.Op(), operands) {
			where := ""
			if gradient {
				where = ", in a gradient"
			}
			return fmt.Errorf("%w: %s (%v of %v%s): %s", ErrRefused, r.Op, n.Op(), operands, where, r.Reason)
		}
	}
	return nil
}

// outerProd is the name of that one among the products.
const outerProd = "a ⊗ b"
