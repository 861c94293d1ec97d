package tensorops

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/caught"
)

// Call is a program's own operation, written in Go.
type Call struct {
	Name string // used in errors
	// Reads and Writes are the operands: any number of contiguous tensors. No operand may overlap
	// one of Writes. bfloat16 operands arrive as float32 (see Array), and results for them are
	// rounded.
	Reads, Writes []Tensor
	// Func gets the operands' numbers. It runs at its place among the list's operations, on one
	// core. It must not change its reads, nor keep any array. An error or a panic fails the list.
	Func func(reads, writes []Array) error
	// Wrap turns an error of Func into the one to report; nil: Name is put before the error.
	Wrap func(error) error
}

// Call records a program's own operation. Devices whose memory the host cannot address refuse it
// with ErrUnsupported.
func (l *List) Call(c Call) {
	o := l.op(KindCall)
	CallArgs{c}.Put(o)
	l.need(o, c.Func != nil, "Func must not be nil")
	for i, t := range c.Reads {
		l.needOperand(c.Name, "reads", i, t)
	}
	for i, t := range c.Writes {
		l.needOperand(c.Name, "writes", i, t)
	}
}

func (l *List) needOperand(name, what string, i int, t Tensor) {
	if l.err == nil && (!t.Valid() || !t.Contiguous() || t.dtype.Quantized()) {
		l.err = fmt.Errorf("%w: call %q: tensor %d that it %s is %v, but it must be contiguous and not quantized", ErrShape, name, i, what, t)
	}
}

// CallArgs are the operands of KindCall.
type CallArgs struct{ Call }

// Put stores the operands.
func (a CallArgs) Put(o *Op) { o.Own = &a.Call }

// Call reads the operands.
func (o *Op) Call() CallArgs { return CallArgs{*o.Own} }

// Run calls Func with view of each operand, and then store for each operand that it may have
// written; it is for devices. An error names the call.
func (c Call) Run(view func(Tensor) Array, store func(Tensor, Array)) (err error) {
	reads, writes := make([]Array, len(c.Reads)), make([]Array, len(c.Writes))
	for i, t := range c.Reads {
		reads[i] = view(t)
	}
	for i, t := range c.Writes {
		writes[i] = view(t)
	}
	switch err := c.call(reads, writes); {
	case err == nil:
		for i, t := range c.Writes {
			store(t, writes[i])
		}
		return nil
	case c.Wrap != nil:
		return c.Wrap(err)
	default:
		return fmt.Errorf("%s: %w", c.Name, err)
	}
}

// call calls Func and turns a panic into an error.
func (c Call) call(reads, writes []Array) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught.Panic(v)
		}
	}()
	return c.Func(reads, writes)
}

// ArrayOf returns a view of a contiguous tensor in host memory, whose elements are stored in their
// own size. For a bfloat16 tensor it is a float32 copy; see StoreArray.
func ArrayOf(t Tensor) Array {
	a := Array{Shape: t.Shape()}
	switch t.DType() {
	case Float64:
		a.Double = Elements[float64](t)
	case Int32:
		a.Int = Elements[int32](t)
	case Float32:
		a.Float = Elements[float32](t)
	case BFloat16:
		bits := Elements[uint16](t)
		a.Float = make([]float32, len(bits))
		for i, b := range bits {
			a.Float[i] = FromBFloat16(b)
		}
	}
	return a
}

// StoreArray rounds the copy of ArrayOf into its bfloat16 tensor. For other types it does nothing.
func StoreArray(t Tensor, a Array) {
	if t.DType() != BFloat16 {
		return
	}
	bits := Elements[uint16](t)
	for i, f := range a.Float {
		bits[i] = ToBFloat16(f)
	}
}
