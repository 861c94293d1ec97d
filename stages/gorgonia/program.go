package gorgonia

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// step is an operation at its position in a program. Its result is the value of its slot.
type step struct {
	op    G.Op
	args  []int // slots
	slot  int
	shape tensor.Shape

	into    G.UsePreallocDoer // nil: it allocates each time
	inPlace G.UnsafeDoer      // an elementwise operation, run on a copy of its operand

	indexed int      // for ByIndices, the axis that the second operand indexes; −1: another operation
	product *product // a matrix product whose only use is as a parameter's gradient
}

// product is a matrix product that can be added to a gradient in place.
type product struct {
	param          int
	transA, transB bool
}

// program lists the operations to compute, in the order in which the graph's nodes were made. Each
// node has a slot for its value. First come the slots of the forward pass, then those that only the
// backward pass needs.
type program struct {
	forward, backward []step
	slots             int // of both passes
	forwardSlots      int
	constants         []G.Value // by slot; nil: computed, or given

	in, params, out, dout []int // slots; −1: not needed, or no gradient
	din, dparams          []int
	outShapes             [][]int
	signature             uint64
}

func newProgram(b *graph) (*program, error) {
	p := &program{}
	forward, err := b.reach(b.out)
	if err != nil {
		return nil, err
	}
	var roots []*G.Node
	for _, nodes := range [][]*G.Node{b.din, b.dparams} {
		for _, n := range nodes {
			if n != nil {
				roots = append(roots, n)
			}
		}
	}
	all, err := b.reach(roots)
	if err != nil {
		return nil, err
	}
	slot := make(map[*G.Node]int)
	place := func(nodes []*G.Node) (steps []step) {
		for _, n := range nodes {
			if _, ok := slot[n]; ok {
				continue
			}
			i := len(slot)
			slot[n] = i
			p.constants = append(p.constants, nil)
			children := b.children(n)
			switch {
			case n.Op() == nil:
			case len(children) == 0: // a constant: Gorgonia's other operations have operands
				p.constants[i] = ownConstant(n.Value())
			default:
				s := step{op: n.Op(), slot: i, shape: n.Shape(), indexed: -1}
				for _, child := range children {
					s.args = append(s.args, slot[child])
				}
				switch typeName(s.op) {
				case "elemUnaryOp":
					s.inPlace, _ = s.op.(G.UnsafeDoer)
				case "byIndicesOp":
					s.indexed = intsOf(s.op, "axis")[0]
				case "sliceIncrOp": // it would add to the old contents
				default:
					s.into, _ = s.op.(G.UsePreallocDoer)
				}
				steps = append(steps, s)
			}
		}
		return steps
	}
	p.forward = place(forward)
	p.forwardSlots = len(slot)
	p.backward = place(all)
	p.slots = len(slot)
	slotOf := func(nodes []*G.Node) []int {
		slots := make([]int, len(nodes))
		for i, n := range nodes {
			slots[i] = -1
			if s, ok := slot[n]; ok && n != nil {
				slots[i] = s
			}
		}
		return slots
	}
	p.in, p.params, p.out, p.dout = slotOf(b.in), slotOf(b.params), slotOf(b.out), slotOf(b.dout)
	p.din, p.dparams = slotOf(b.din), slotOf(b.dparams)
	for _, n := range b.out {
		p.outShapes = append(p.outShapes, []int(n.Shape()))
	}
	p.findProducts()
	p.signature = signature(append(p.forward[:len(p.forward):len(p.forward)], p.backward...), p.constants)
	return p, nil
}

// ownConstant returns a constant with its own header: operations transpose the header temporarily,
// and Build may pass the same tensor to all graphs.
func ownConstant(v G.Value) G.Value {
	if t, ok := v.(*tensor.Dense); ok {
		return t.ShallowClone()
	}
	return v
}

// findProducts finds the parameters' gradients that are matrix products.
func (p *program) findProducts() {
	uses := make([]int, p.slots)
	for _, steps := range [][]step{p.forward, p.backward} {
		for _, s := range steps {
			for _, slot := range s.args {
				uses[slot]++
			}
		}
	}
	for _, slots := range [][]int{p.out, p.din, p.dparams} {
		for _, slot := range slots {
			if slot >= 0 {
				uses[slot]++
			}
		}
	}
	for i := range p.backward {
		s := &p.backward[i]
		param := slices.Index(p.dparams, s.slot)
		if param < 0 || uses[s.slot] != 1 || typeName(s.op) != "linAlgBinOp" {
			continue
		}
		op := reflect.ValueOf(s.op)
		if op.FieldByName("āBinaryOperator").Uint() == 0 { // matMulOperator
			s.product = &product{param, op.FieldByName("transA").Bool(), op.FieldByName("transB").Bool()}
		}
	}
}

// addTo adds the product to a gradient. It returns false and does nothing if the operands are not
// contiguous float32.
func (p *product) addTo(grad tensorops.Array, operands []G.Value) (bool, error) {
	var data [2][]float32
	var rows, cols [2]int
	for i, v := range operands {
		t, ok := v.(*tensor.Dense)
		if !ok || t.Dims() != 2 || t.RequiresIterator() || t.IsView() || !t.DataOrder().IsRowMajor() {
			return false, nil
		}
		if data[i], ok = t.Data().([]float32); !ok {
			return false, nil
		}
		rows[i], cols[i] = t.Shape()[0], t.Shape()[1]
	}
	if grad.Float == nil {
		return false, nil
	}
	m, k, n := rows[0], cols[0], cols[1]
	if p.transA {
		m, k = k, m
	}
	if p.transB {
		n = rows[1]
	}
	return true, cpu.Gemm(p.transA, p.transB, m, n, k, 1, data[0], cols[0], data[1], cols[1], 1, grad.Float, n)
}

// memory holds the values of some slots, and which of their memory can be reused.
type memory struct {
	values []G.Value
	reuse  []bool // only this slot uses the value's memory
}

func newMemory(slots int) *memory {
	return &memory{make([]G.Value, slots), make([]bool, slots)}
}

// run computes one step. operands is scratch for its operands.
func (s *step) run(operands []G.Value, own *memory, at int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v panicked: %v\n%s", s.op, p, debug.Stack())
		}
	}()
	old := own.values[at]
	if !own.reuse[at] {
		old = nil
	}
	if s.indexed >= 0 {
		if err := checkIndices(operands[1], operands[0].Shape()[s.indexed]); err != nil {
			return fmt.Errorf("%v of %s: %w", s.op, shapesOf(operands), err)
		}
	}
	v, err := s.compute(operands, old)
	if err != nil {
		return fmt.Errorf("%v of %s: %w", s.op, shapesOf(operands), err)
	}
	if v == nil {
		return fmt.Errorf("%v of %s returned no result", s.op, shapesOf(operands))
	}
	if v != old {
		if t, ok := v.(tensor.Tensor); ok {
			tensor.WithEngine(G.StandardEngine{})(t)
		}
	}
	own.values[at] = v
	own.reuse[at] = v == old || ownMemory(v, operands)
	return nil
}

// checkIndices checks the indices of ByIndices, which does not check them itself.
func checkIndices(v G.Value, n int) error {
	indices, _ := v.Data().([]int)
	for i, index := range indices {
		if index < 0 || index >= n {
			return fmt.Errorf("%w: index %d, at position %d, is out of range: it must be from 0 and below %d", ErrInput, index, i, n)
		}
	}
	return nil
}

var errNotInPlace = errors.New("not in place")

// compute reuses the memory of the old result if possible.
func (s *step) compute(operands []G.Value, old G.Value) (G.Value, error) {
	switch {
	case old == nil:
	case s.inPlace != nil:
		if v, err := s.computeInPlace(operands, old); err == nil {
			return v, nil
		}
	case s.into != nil:
		// Some operations fail with preallocated memory but work without it.
		if v, err := s.into.UsePreallocDo(old, operands...); err == nil {
			return v, nil
		}
	}
	return s.op.Do(operands...)
}

func (s *step) computeInPlace(operands []G.Value, old G.Value) (G.Value, error) {
	from, ok := operands[0].(*tensor.Dense)
	to, ok2 := old.(*tensor.Dense)
	if !ok || !ok2 || from.RequiresIterator() || to.RequiresIterator() || from.Dtype() != to.Dtype() || !from.Shape().Eq(to.Shape()) {
		return nil, errNotInPlace
	}
	if _, err := G.Copy(to, from); err != nil {
		return nil, err
	}
	return s.inPlace.UnsafeDo(to)
}

func shapesOf(values []G.Value) string {
	s := make([]tensor.Shape, len(values))
	for i, v := range values {
		if v != nil {
			s[i] = v.Shape()
		}
	}
	return fmt.Sprint(s)
}

// ownMemory reports whether a result is a tensor that shares no memory with an operand.
func ownMemory(v G.Value, operands []G.Value) bool {
	t, ok := v.(*tensor.Dense)
	if !ok || t.IsView() {
		return false
	}
	lo, hi := span(t)
	for _, o := range operands {
		if t, ok := o.(*tensor.Dense); ok {
			if l, h := span(t); l < hi && lo < h {
				return false
			}
		}
	}
	return true
}

// span returns the address range of a tensor's numbers.
func span(t *tensor.Dense) (lo, hi uintptr) {
	lo = t.Uintptr()
	return lo, lo + t.MemSize()
}
