package count

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// What an Event is, as standin.h numbers them.
type What uint64

// The kinds of events.
const (
	Kernel  What = iota + 1 // a kernel is launched
	Product                 // cuBLASLt computes a product
	In                      // bytes are copied from the host
	Out                     // bytes are copied to the host
	Within                  // bytes are copied on the device
	Set                     // words are set
	Graph                   // a graph is launched; what is in it follows
	Idle                    // the device had nothing to do when it was given what follows
)

// Event is a line of the stand-in's log.
type Event struct {
	What    What
	InGraph bool
	// Of a kernel.
	Name     string
	Number   uint64 // of the launch
	Grid     [3]int // blocks
	Threads  int    // of a block
	argument []uint64
	bytes    int // of the argument
	// Of a product.
	M, N, K  int
	Operands []ProductOperand
	// Of a copy.
	From, To uint64
	Bytes    int
	// device is the device's memory, as far as it is known: see Log.
	device map[uint64][]byte
}

// ProductOperand is what a product reads, or writes, or both.
type ProductOperand struct {
	At            uint64
	Bytes         int
	Reads, Writes bool
}

// Log reads the words of the stand-in's log. It knows what small copies have brought to the
// device, which are tables that kernels go by.
type Log struct {
	Name func(kernel uint64) string // standin.Library.Kernel

	device map[uint64][]byte
}

var errLog = errors.New("the stand-in's log cannot be read")

// Read tells f the events of some words, in order. Of the device f sees what is there by then. The
// events read the words: f must not keep them longer.
func (l *Log) Read(words []uint64, f func(e *Event) error) error {
	if l.device == nil {
		l.device = make(map[uint64][]byte)
	}
	inGraph := uint64(0)
	for len(words) > 0 {
		if len(words) < 2 || uint64(len(words)-2) < words[1] {
			return fmt.Errorf("%w: only %d words of a record are left", errLog, len(words))
		}
		e, p := Event{What: What(words[0]), device: l.device}, words[2:2+words[1]]
		words = words[2+words[1]:]
		if e.InGraph = inGraph > 0; e.InGraph {
			inGraph--
		}
		switch least := fields[e.What]; {
		case least == 0 && e.What != Idle:
			return fmt.Errorf("%w: a record of kind %d", errLog, e.What)
		case len(p) < least:
			return fmt.Errorf("%w: a record of kind %d with %d words, want %d or more", errLog, e.What, len(p), least)
		}
		switch e.What {
		case Kernel:
			e.Number, e.Name = p[0], l.Name(p[1])
			e.Grid, e.Threads = [3]int{int(p[2]), int(p[3]), int(p[4])}, int(p[5])
			e.bytes, e.argument = int(p[6]), p[7:]
		case Product:
			e.M, e.N, e.K = int(p[0]), int(p[1]), int(p[2])
			for p = p[3:]; len(p) >= 4; p = p[4:] {
				e.Operands = append(e.Operands, ProductOperand{p[0], int(p[1]), p[2] != 0, p[3] != 0})
			}
		case In:
			e.To, e.Bytes = p[0], int(p[1])
			if p = p[2:]; len(p) > 0 {
				l.device[e.To] = slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&p[0])), e.Bytes))
			}
		case Out:
			e.From, e.Bytes = p[0], int(p[1])
		case Within:
			e.To, e.From, e.Bytes = p[0], p[1], int(p[2])
		case Set:
			e.To, e.Bytes = p[0], int(p[1])
		case Graph:
			inGraph = p[0]
		case Idle:
		}
		if err := f(&e); err != nil {
			return err
		}
	}
	return nil
}

// fields are the fewest words of each kind.
var fields = map[What]int{Kernel: 7, Product: 3, In: 2, Out: 2, Within: 3, Set: 2, Graph: 1}

// argument is a kernel's argument, of which the table knows the layout.
func argument[A any](e *Event) (*A, error) {
	size := int(unsafe.Sizeof(*new(A)))
	if e.bytes != size || 8*len(e.argument) < size {
		return nil, fmt.Errorf("kernel %s: its argument has %d bytes, in the table of package count it has %d: bring the table up to date",
			e.Name, e.bytes, size)
	}
	return (*A)(unsafe.Pointer(unsafe.SliceData(e.argument))), nil
}

// entries are a table of n entries that a kernel goes by.
func entries[E any](e *Event, at uint64, n int64) ([]E, error) {
	bytes := e.device[at]
	size := int64(unsafe.Sizeof(*new(E)))
	if n < 1 || int64(len(bytes)) < n*size {
		return nil, fmt.Errorf("kernel %s: its table of %d entries of %d bytes is not in the log, which has %d bytes of it", e.Name, n, size,
			len(bytes))
	}
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(bytes))), n), nil
}
