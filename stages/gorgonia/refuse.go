package gorgonia

import (
	"fmt"
	"reflect"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Refusal is an operation that a layer must not contain.
type Refusal struct {
	Op     string // the name of Gorgonia's function
	Reason string

	match func(op G.Op, operands []tensor.Shape) bool
	// result: the operation's result is wrong, not only its gradient. Then gradients that use it
	// are refused as well.
	result bool
}

// Refused returns the operations for which a graph is refused, except those without a symbolic
// gradient in Gorgonia (At, DiagFlat, GlobalAveragePool2D).
func Refused() []Refusal { return slices.Clone(refusals) }

// refusals are for Gorgonia 0.9.18; TestOps shows the fault of each.
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
		Reason: "its gradient is wrong except along the last axis of a matrix, and it fails for tensors of other ranks: use SoftMax"},
	{Op: "ByIndices along an axis other than the first, for 3 or more dimensions", match: func(op G.Op, in []tensor.Shape) bool {
		return typeName(op) == "byIndicesOp" && intsOf(op, "axis")[0] > 0 && len(in[0]) > 2
	}, Reason: "its gradient is wrong: use Transpose or Reshape to make the axis the first"},
	{Op: "Sum, Mean, Max, Norm or a broadcast along the third or a later axis that is not the last", result: true, match: reducesInner,
		Reason: "Gorgonia adds the wrong numbers: use Reshape to make the axis the first, the second or the last"},
	{Op: "Slice with a step", result: true, match: func(op G.Op, _ []tensor.Shape) bool {
		s, ok := op.(interface{ IsSlice() tensor.Slice })
		return ok && s.IsSlice() != nil && s.IsSlice().Step() > 1
	}, Reason: "it fails for many shapes: use Reshape, and Slice without a step"},
	{Op: "BatchNorm", match: typeIs("BatchNormOp"),
		Reason: "its result depends on the graph's earlier microbatches: compose it from Mean, Square and Sqrt"},
	{Op: "GroupNorm", match: typeIs("GroupNormOp"),
		Reason: "it prints its gradient at every backward pass: compose it from Mean, Square and Sqrt"},
	{Op: "Dropout", match: typeIs("dropoutOp"),
		Reason: "its random numbers depend on the clock, so runs are not reproducible: pass a mask as an input of the layer"},
	{Op: "random nodes", match: typeIs("randomOp"),
		Reason: "their random numbers depend on the clock, so runs are not reproducible: pass them as an input of the layer"},
	{Op: "Read and Let", match: func(op G.Op, _ []tensor.Shape) bool { return typeName(op) == "readOp" || typeName(op) == "letOp" },
		Reason: "a layer must return its results as outputs"},
}

// intsOf reads an operation's field that is an int or a slice of ints.
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

// reducesInner matches reductions along an axis with at least two axes before it and one after it.
// Gorgonia reduces one axis after the other, the first one first.
func reducesInner(op G.Op, in []tensor.Shape) bool {
	if name := typeName(op); name != "sumOp" && name != "maxOp" {
		return false
	}
	along, dims := intsOf(op, "along"), len(in[0])
	if len(along) == dims {
		return false // all axes at once
	}
	slices.Sort(along)
	for done, axis := range along {
		if axis -= done; axis >= 2 && axis < dims-done-1 {
			return true
		}
	}
	return false
}

// unaryIs matches an elementwise operation by Gorgonia's name for it.
func unaryIs(name string) func(G.Op, []tensor.Shape) bool {
	return func(op G.Op, _ []tensor.Shape) bool {
		return typeName(op) == "elemUnaryOp" && op.(fmt.Stringer).String() == name
	}
}

// typeIs matches an operation by the name of its Go type; the types are not exported.
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

// constantInPieces reports whether an operation's gradient is zero wherever it exists: comparisons,
// signs, roundings and sizes.
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
				return fmt.Errorf("%w: node %q is neither an input nor a parameter of the layer: make it a constant (gorgonia.NewConstant), or declare it", ErrGraph, n.Name())
			}
			continue
		}
		if err := b.refuse(n, false); err != nil {
			return err
		}
		switch dtype := n.Dtype(); dtype {
		case float, tensor.Int, tensor.Bool:
		default:
			return fmt.Errorf("%w: %v returns %v, but a layer's graph may only have %v, tensor.Int and bool", ErrGraph, n.Op(), dtype, float)
		}
	}
	return nil
}

// refuse returns the error of a refused node, or of a refused node among the gradients.
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

// outerProd is Gorgonia's name for the outer product.
const outerProd = "a ⊗ b"
