package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of Thrift's compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// errShort: a struct continues after the bytes that there are.
var errShort = errors.New("the bytes end within a field")

// thriftWalk walks over a struct of Thrift's compact protocol and allocates nothing. It proves that every length that the
// struct states is one that it has.
type thriftWalk struct {
	b        []byte
	at       int
	elements int // of lists and maps so far
	// number gets every integer with the ids of the fields that lead to it; 0 stands for an element of a list.
	number func(path []int16, v int64)
	path   []int16
}

// walkStruct returns the length of the struct at the start of b.
func walkStruct(b []byte, number func(path []int16, v int64)) (n int, err error) {
	w := thriftWalk{b: b, number: number}
	err = w.fields()
	return w.at, err
}

func (w *thriftWalk) byte() (byte, error) {
	if w.at >= len(w.b) {
		return 0, errShort
	}
	w.at++
	return w.b[w.at-1], nil
}

func (w *thriftWalk) varint() (uint64, error) {
	v, n := binary.Uvarint(w.b[w.at:])
	switch {
	case n == 0:
		return 0, errShort
	case n < 0:
		return 0, errors.New("a number has more than 64 bits")
	}
	w.at += n
	return v, nil
}

func (w *thriftWalk) integer() (int64, error) {
	v, err := w.varint()
	return int64(v>>1) ^ -int64(v&1), err
}

func (w *thriftWalk) skip(n uint64) error {
	if n > uint64(len(w.b)-w.at) {
		return errShort
	}
	w.at += int(n)
	return nil
}

func (w *thriftWalk) fields() error {
	if len(w.path) >= limitDepth {
		return fmt.Errorf("structs are nested deeper than %d", limitDepth)
	}
	id := int16(0)
	for {
		head, err := w.byte()
		if err != nil {
			return err
		}
		if head == 0 {
			return nil
		}
		if delta := int16(head >> 4); delta > 0 {
			id += delta
		} else {
			v, err := w.integer()
			if err != nil {
				return err
			}
			id = int16(v)
		}
		w.path = append(w.path, id)
		if err := w.value(head&15, false); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
}

func (w *thriftWalk) value(kind byte, listed bool) error {
	switch kind {
	case thriftTrue, thriftFalse:
		if listed { // in a field its type is its value
			return w.skip(1)
		}
		return nil
	case thriftByte:
		return w.skip(1)
	case thriftI16, thriftI32, thriftI64:
		v, err := w.integer()
		if err == nil && w.number != nil {
			w.number(w.path, v)
		}
		return err
	case thriftDouble:
		return w.skip(8)
	case thriftUUID:
		return w.skip(16)
	case thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case thriftList, thriftSet:
		return w.list()
	case thriftMap:
		return w.entries()
	case thriftStruct:
		return w.fields()
	}
	return fmt.Errorf("a field has the unknown type %d", kind)
}

// count takes n elements: each has at least one byte.
func (w *thriftWalk) count(n uint64) error {
	if n > uint64(len(w.b)-w.at) {
		return errShort
	}
	if w.elements += int(n); w.elements > limitFooterElements {
		return fmt.Errorf("lists have more than %d elements", limitFooterElements)
	}
	return nil
}

func (w *thriftWalk) list() error {
	head, err := w.byte()
	if err != nil {
		return err
	}
	n := uint64(head >> 4)
	if n == 15 {
		if n, err = w.varint(); err != nil {
			return err
		}
	}
	if err := w.count(n); err != nil {
		return err
	}
	w.path = append(w.path, 0)
	defer func() { w.path = w.path[:len(w.path)-1] }()
	if len(w.path) >= limitDepth {
		return fmt.Errorf("lists are nested deeper than %d", limitDepth)
	}
	for range n {
		if err := w.value(head&15, true); err != nil {
			return err
		}
	}
	return nil
}

func (w *thriftWalk) entries() error {
	n, err := w.varint()
	if err != nil || n == 0 {
		return err
	}
	kinds, err := w.byte()
	if err != nil {
		return err
	}
	if err := w.count(n); err != nil {
		return err
	}
	for range n {
		if err := w.value(kinds>>4, true); err != nil {
			return err
		}
		if err := w.value(kinds&15, true); err != nil {
			return err
		}
	}
	return nil
}
