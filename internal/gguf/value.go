package gguf

import (
	"errors"
	"fmt"
)

// Entry is a key with its value: a number (int8 to int64, uint8 to uint64, float32, float64), a bool, a
// string, or a slice of one of these types.
type Entry struct {
	Key   string
	Value any
}

// kind is the type of a value, with the format's number.
type kind uint32

const (
	kindUint8 kind = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// bytes returns the size of a number or a bool; 0: the kind has no fixed size.
func (k kind) bytes() int64 {
	switch k {
	case kindUint8, kindInt8, kindBool:
		return 1
	case kindUint16, kindInt16:
		return 2
	case kindUint32, kindInt32, kindFloat32:
		return 4
	case kindUint64, kindInt64, kindFloat64:
		return 8
	}
	return 0
}

// kindOf returns the kind of a value, and for a slice that of its elements.
func kindOf(v any) (k, element kind, err error) {
	switch v.(type) {
	case uint8:
		return kindUint8, 0, nil
	case int8:
		return kindInt8, 0, nil
	case uint16:
		return kindUint16, 0, nil
	case int16:
		return kindInt16, 0, nil
	case uint32:
		return kindUint32, 0, nil
	case int32:
		return kindInt32, 0, nil
	case float32:
		return kindFloat32, 0, nil
	case bool:
		return kindBool, 0, nil
	case string:
		return kindString, 0, nil
	case uint64:
		return kindUint64, 0, nil
	case int64:
		return kindInt64, 0, nil
	case float64:
		return kindFloat64, 0, nil
	case []uint8:
		return kindArray, kindUint8, nil
	case []int8:
		return kindArray, kindInt8, nil
	case []uint16:
		return kindArray, kindUint16, nil
	case []int16:
		return kindArray, kindInt16, nil
	case []uint32:
		return kindArray, kindUint32, nil
	case []int32:
		return kindArray, kindInt32, nil
	case []float32:
		return kindArray, kindFloat32, nil
	case []bool:
		return kindArray, kindBool, nil
	case []string:
		return kindArray, kindString, nil
	case []uint64:
		return kindArray, kindUint64, nil
	case []int64:
		return kindArray, kindInt64, nil
	case []float64:
		return kindArray, kindFloat64, nil
	}
	return 0, 0, fmt.Errorf("a value of type %T has no form in GGUF", v)
}

// value reads a value of a kind.
func (c *cursor) value(k kind) (any, error) {
	switch k {
	case kindUint8:
		return number[uint8](c)
	case kindInt8:
		return number[int8](c)
	case kindUint16:
		return number[uint16](c)
	case kindInt16:
		return number[int16](c)
	case kindUint32:
		return number[uint32](c)
	case kindInt32:
		return number[int32](c)
	case kindFloat32:
		return number[float32](c)
	case kindBool:
		all, err := c.bools(1)
		if err != nil {
			return nil, err
		}
		return all[0], nil
	case kindString:
		return c.text(StringBytesMax)
	case kindUint64:
		return number[uint64](c)
	case kindInt64:
		return number[int64](c)
	case kindFloat64:
		return number[float64](c)
	case kindArray:
		return c.array()
	}
	return nil, fmt.Errorf("type %d is none of the format's 13 types of values", k)
}

// array reads the kind of the elements, their number, and the elements.
func (c *cursor) array() (any, error) {
	k, err := number[uint32](c)
	if err != nil {
		return nil, err
	}
	element := kind(k)
	if element == kindArray {
		return nil, errors.New("it is an array of arrays, which Troupe does not read")
	}
	least := element.bytes()
	if element == kindString {
		least = lengthBytes
	}
	if least == 0 {
		return nil, fmt.Errorf("its elements have type %d, none of the format's types", k)
	}
	n, err := c.count(least, "elements")
	if err != nil {
		return nil, err
	}
	switch element {
	case kindUint8:
		return numbers[uint8](c, n)
	case kindInt8:
		return numbers[int8](c, n)
	case kindUint16:
		return numbers[uint16](c, n)
	case kindInt16:
		return numbers[int16](c, n)
	case kindUint32:
		return numbers[uint32](c, n)
	case kindInt32:
		return numbers[int32](c, n)
	case kindFloat32:
		return numbers[float32](c, n)
	case kindUint64:
		return numbers[uint64](c, n)
	case kindInt64:
		return numbers[int64](c, n)
	case kindFloat64:
		return numbers[float64](c, n)
	case kindBool:
		return c.bools(n)
	}
	all := make([]string, n)
	for i := range all {
		if all[i], err = c.text(StringBytesMax); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return all, nil
}
