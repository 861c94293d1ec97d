package parquet

import (
	"errors"

	"github.com/parquet-go/parquet-go"
)

// span is the values of a leaf for one instance of a node.
type span []parquet.Value

var errLevels = errors.New("the levels of its values do not fit the schema: the file is damaged")

// appendNode writes an instance of a node. values has the values of each of its leaves.
func appendNode(dst []byte, n *node, values []span) ([]byte, error) {
	for _, v := range values {
		if len(v) == 0 {
			return dst, columnErr(n, errLevels)
		}
	}
	if n.repeated {
		return appendElements(dst, n, values, n.def, n.rep, appendOne)
	}
	// A list's own group may be null, one level before it is empty.
	switch def := values[0][0].DefinitionLevel(); {
	case n.shape == isList || n.shape == isMap:
		if n.optional && def < n.def-1 {
			return append(dst, "null"...), nil
		}
	case n.optional && def < n.def:
		return append(dst, "null"...), nil
	}
	return appendOne(dst, n, values)
}

func columnErr(n *node, err error) error { return columnError(n.name, "%w", err) }

// appendOne writes a node that is there.
func appendOne(dst []byte, n *node, values []span) (_ []byte, err error) {
	switch n.shape {
	case isLeaf:
		if len(values[0]) != 1 {
			return dst, columnErr(n, errLevels)
		}
		if values[0][0].IsNull() { // a column of nulls
			return append(dst, "null"...), nil
		}
		if dst, err = n.write(dst, values[0][0]); err != nil {
			return dst, columnErr(n, err)
		}
		return dst, nil
	case isList:
		return appendElements(dst, n, values, n.def, n.rep, func(dst []byte, n *node, values []span) ([]byte, error) {
			return appendNode(dst, n.children[0], values)
		})
	case isMap:
		return appendElements(dst, n, values, n.def, n.rep, func(dst []byte, n *node, values []span) ([]byte, error) {
			return appendMembers(dst, n, values)
		})
	}
	return appendMembers(dst, n, values)
}

// appendMembers writes an object with the node's children.
func appendMembers(dst []byte, n *node, values []span) (_ []byte, err error) {
	dst = append(dst, '{')
	for i, child := range n.children {
		if i > 0 {
			dst = append(dst, ',')
		}
		at := child.first - n.first
		dst = append(dst, child.quoted...)
		if dst, err = appendNode(dst, child, values[at:at+child.leaves]); err != nil {
			return dst, err
		}
		if len(dst) > limitRowBytes {
			return dst, columnError(child.name, "the row has more than %d bytes", limitRowBytes)
		}
	}
	return append(dst, '}'), nil
}

// appendElements writes an array: each element begins at a value whose repetition level is at most rep.
func appendElements(dst []byte, n *node, values []span, def, rep int, one func([]byte, *node, []span) ([]byte, error)) (_ []byte,
	err error) {
	dst = append(dst, '[')
	if values[0][0].DefinitionLevel() < def {
		return append(dst, ']'), nil
	}
	rest, element := append([]span(nil), values...), make([]span, len(values))
	for count := 0; len(rest[0]) > 0; count++ {
		for i, v := range rest {
			if len(v) == 0 {
				return dst, columnErr(n, errLevels)
			}
			end := 1
			for end < len(v) && v[end].RepetitionLevel() > rep {
				end++
			}
			element[i], rest[i] = v[:end], v[end:]
		}
		if count > 0 {
			dst = append(dst, ',')
		}
		if dst, err = one(dst, n, element); err != nil {
			return dst, err
		}
	}
	for _, v := range rest {
		if len(v) > 0 {
			return dst, columnErr(n, errLevels)
		}
	}
	return append(dst, ']'), nil
}
