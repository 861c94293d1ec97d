package count

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Use says how a kernel goes through an operand. It is what the emulation is compared with.
type Use uint8

const (
	Once     Use = iota // each byte is loaded, or stored, once
	Again               // each byte is, once or more often; beyond Times it is in a cache
	Some                // no more than these bytes: how many depends on the data
	Cached              // some of these bytes, which are in a cache: nothing passes from memory
	Gathered            // some of a larger matrix's rows, with a total of this many bytes
)

// Operand is memory that a kernel reads or writes.
type Operand struct {
	At                     uint64
	Rows, RowBytes, Stride int64 // in bytes; contiguous rows have a stride of RowBytes
	Use                    Use
	Times                  int64 // that it passes from or to memory; 0 counts as 1
	Of                     int64 // Gathered, Some: bytes that Rows·RowBytes are taken of; 0: of no more
}

// Bytes are those that pass from memory or to it.
func (o Operand) Bytes() int64 {
	if o.Use == Cached {
		return 0
	}
	return o.Rows * o.RowBytes * max(o.Times, 1)
}

// Group is what a kernel is part of, for sums.
type Group string

// The groups. Products and attention are what a GPU is bought for; all else is element-wise.
const (
	Products    Group = "products"
	Attention   Group = "attention"
	Norms       Group = "norms"
	Residual    Group = "residual"
	Activations Group = "activations"
	Loss        Group = "loss"
	Optimizer   Group = "optimizer"
	Embeddings  Group = "embedding"
	Columns     Group = "column sums"
	Experts     Group = "experts" // routers, and rows on their way to experts
	Roundings   Group = "roundings and copies"
	Fills       Group = "fills"
)

// ElementWise reports whether a group is neither products nor attention.
func (g Group) ElementWise() bool { return g != Products && g != Attention }

// Cost is what a launch moves and computes.
type Cost struct {
	Group         Group
	Reads, Writes []Operand
	FLOPs         float64
}

// Bytes are those read and written.
func (c *Cost) Bytes() (read, written int64) {
	for _, o := range c.Reads {
		read += o.Bytes()
	}
	for _, o := range c.Writes {
		written += o.Bytes()
	}
	return read, written
}

// Of is the cost of an event.
func Of(e *Event) (Cost, error) {
	switch e.What {
	case Kernel:
		of, ok := kernels[strings.TrimSuffix(e.Name, mixedForm)]
		if !ok {
			return Cost{}, fmt.Errorf("kernel %s is not in the table of package count: add what it reads and writes", e.Name)
		}
		return of(e)
	case Product:
		c := Cost{Group: Products, FLOPs: 2 * float64(e.M) * float64(e.N) * float64(e.K)}
		for _, o := range e.Operands {
			bytes := Operand{At: o.At, Rows: 1, RowBytes: int64(o.Bytes)}
			if o.Reads {
				c.Reads = append(c.Reads, bytes)
			}
			if o.Writes {
				c.Writes = append(c.Writes, bytes)
			}
		}
		return c, nil
	case In:
		return Cost{Group: Roundings, Writes: []Operand{{At: e.To, Rows: 1, RowBytes: int64(e.Bytes)}}}, nil
	case Out:
		return Cost{Group: Roundings, Reads: []Operand{{At: e.From, Rows: 1, RowBytes: int64(e.Bytes)}}}, nil
	case Within:
		return Cost{Group: Roundings, Reads: []Operand{{At: e.From, Rows: 1, RowBytes: int64(e.Bytes)}},
			Writes: []Operand{{At: e.To, Rows: 1, RowBytes: int64(e.Bytes)}}}, nil
	case Set:
		return Cost{Group: Fills, Writes: []Operand{{At: e.To, Rows: 1, RowBytes: int64(e.Bytes)}}}, nil
	}
	return Cost{}, nil
}

// mixedForm ends the name of a kernel for operands that may be bfloat16: see FORMS in four.cuh.
const mixedForm = "_mixed"

// CacheBytes is the longest row that a block finds in the cache near it when it goes through it a
// second time: of an H100's 256 KiB, a block of four on a multiprocessor has as much.
const CacheBytes = 64 << 10

// costOf is a line of the table: what a kernel costs with an argument.
type costOf func(e *Event) (Cost, error)

// line makes one of what is known from the argument.
func line[A any](group Group, of func(a *A, e *Event, c *Cost)) costOf {
	return func(e *Event) (Cost, error) {
		c := Cost{Group: group}
		a, err := argument[A](e)
		if err == nil {
			of(a, e, &c)
		}
		return c, err
	}
}

// reads adds operands that are there.
func (c *Cost) reads(operands ...Operand) { c.Reads = add(c.Reads, operands) }

// writes adds operands that are there.
func (c *Cost) writes(operands ...Operand) { c.Writes = add(c.Writes, operands) }

func add(to, operands []Operand) []Operand {
	for _, o := range operands {
		if o.At != 0 && o.Rows*o.RowBytes > 0 {
			to = append(to, o)
		}
	}
	return to
}

// array is an operand of n elements of so many bytes.
func array(at uint64, n, size int64) Operand { return Operand{At: at, Rows: 1, RowBytes: n * size} }

// either is one of n elements of float32, or of bfloat16 if a bit of halves is set.
func either(at uint64, n int64, halves uint32, bit int) Operand {
	return array(at, n, sizeOf(halves, bit))
}

func sizeOf(halves uint32, bit int) int64 {
	if halves>>bit&1 != 0 {
		return 2
	}
	return 4
}

// matrix is an operand of rows that lie a stride of elements apart.
func matrix(at uint64, rows, cols, stride, size int64) Operand {
	return Operand{At: at, Rows: rows, RowBytes: cols * size, Stride: stride * size}
}

// again is the operand, of which a kernel loads or stores bytes more than once.
func (o Operand) again() Operand {
	o.Use = Again
	return o
}

// some is the operand as a bound.
func (o Operand) some() Operand {
	o.Use = Some
	return o
}

// passes is the operand in rows of so many bytes, through each of which a block goes n times.
func (o Operand) passes(n, rowBytes int64) Operand {
	if o.Use = Again; rowBytes > CacheBytes {
		o.Times = n
	}
	return o
}

// Kernels are the names in the table, without the form for operands that may be bfloat16.
func Kernels() []string { return slices.Sorted(maps.Keys(kernels)) }
