package parquet

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

var errUTF8 = errors.New("the text is not UTF-8")

// writerOf returns the function that writes a value of a column as JSON, or an error for one that has none.
func writerOf(c *parquet.Column) (func(dst []byte, v parquet.Value) ([]byte, error), error) {
	t := c.Type()
	if l := t.LogicalType(); l != nil {
		if _, ok := l.Value.(*format.NullType); ok { // all values are null
			return func(dst []byte, _ parquet.Value) ([]byte, error) { return append(dst, "null"...), nil }, nil
		}
	}
	switch t.Kind() {
	case parquet.Boolean:
		return func(dst []byte, v parquet.Value) ([]byte, error) { return strconv.AppendBool(dst, v.Boolean()), nil }, nil
	case parquet.Int32:
		return func(dst []byte, v parquet.Value) ([]byte, error) {
			return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
		}, nil
	case parquet.Int64:
		return func(dst []byte, v parquet.Value) ([]byte, error) { return strconv.AppendInt(dst, v.Int64(), 10), nil }, nil
	case parquet.Float:
		return func(dst []byte, v parquet.Value) ([]byte, error) {
			return appendFloat(dst, float64(v.Float()), 32), nil
		}, nil
	case parquet.Double:
		return func(dst []byte, v parquet.Value) ([]byte, error) { return appendFloat(dst, v.Double(), 64), nil }, nil
	case parquet.ByteArray:
		if isText(t) {
			return func(dst []byte, v parquet.Value) ([]byte, error) { return appendText(dst, v.ByteArray()) }, nil
		}
		return nil, errors.New("it holds bytes, not text (its values are not marked as UTF-8), such as an image; " +
			"leave the column out, or save it as strings")
	}
	return nil, fmt.Errorf("it has the type %s, which is neither text nor a number; leave the column out, or save it as strings", t)
}

// isText reports whether the values of a column are UTF-8.
func isText(t parquet.Type) bool {
	if l := t.LogicalType(); l != nil {
		switch l.Value.(type) {
		case *format.StringType, *format.EnumType, *format.JsonType:
			return true
		}
	}
	if c := t.ConvertedType(); c != nil {
		return *c == deprecated.UTF8 || *c == deprecated.Enum || *c == deprecated.Json
	}
	return false
}

// appendFloat writes a number; JSON has none for NaN and the infinities.
func appendFloat(dst []byte, v float64, bits int) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, bits)
}

const hexDigits = "0123456789abcdef"

// appendText writes a text as a JSON string.
func appendText(dst, text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return dst, errUTF8
	}
	dst = append(dst, '"')
	from := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
	}
	return append(append(dst, text[from:]...), '"'), nil
}
