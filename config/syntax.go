package config

import (
	"errors"

	"github.com/pelletier/go-toml/v2/unstable"
)

// This file alone knows the parser below go-toml, which says where things stand and
// makes no promise to stay as it is.

// kind is what a value, or a statement, is.
type kind int

const (
	isOther kind = iota // a date or a time
	isString
	isInteger
	isFloat
	isBool
	isList
	isTable
	isKeyValue      // key = value
	isSection       // [section]
	isSectionOfList // [[section]]
)

var kinds = map[unstable.Kind]kind{
	unstable.String: isString, unstable.Integer: isInteger, unstable.Float: isFloat, unstable.Bool: isBool, unstable.Array: isList,
	unstable.InlineTable: isTable, unstable.KeyValue: isKeyValue, unstable.Table: isSection, unstable.ArrayTable: isSectionOfList,
}

// statement is a header or a key with its value. Its key takes the bytes [from, to) of
// the text.
type statement struct {
	kind     kind
	path     []string // of the dotted key
	from, to int
	value    written
}

// written is a value as someone wrote it.
type written struct {
	kind    kind
	text    string      // a string's content, any other scalar as written
	offset  int         // in the text; -1: not known
	items   []written   // a list's, up to one more than maxEntries; of a list in a list, up to one more than maxPair, without their own
	members []statement // a table's, in one line; without those of deep tables in it
}

// maxTableDepth is how deep tables in one line are read: data = {source = [{…}]}.
const maxTableDepth = 2

// maxPair is how many items a list in a list may have.
const maxPair = 2

// syntax takes a TOML text apart, statement by statement.
type syntax struct{ parser unstable.Parser }

func newSyntax(text []byte) *syntax {
	s := &syntax{}
	s.parser.Reset(text)
	return s
}

// next returns the next statement; ok is false at the end, and after an error.
func (s *syntax) next() (st statement, ok bool) {
	for s.parser.NextExpression() {
		node := s.parser.Expression()
		if k := kinds[node.Kind]; k == isKeyValue || k == isSection || k == isSectionOfList {
			return s.statement(k, node, maxTableDepth), true
		}
	}
	return statement{}, false
}

// err is what is wrong with the text, and where: an offset, -1 where that isn't known.
func (s *syntax) err() (offset int, msg string) {
	err := s.parser.Error()
	var at *unstable.ParserError
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &at):
		return int(s.parser.Range(at.Highlight).Offset), at.Message
	}
	return -1, err.Error()
}

func (s *syntax) statement(k kind, node *unstable.Node, depth int) statement {
	st := statement{kind: k}
	for parts := node.Key(); parts.Next(); {
		raw := parts.Node().Raw
		if st.path == nil {
			st.from = int(raw.Offset)
		}
		st.to = int(raw.Offset + raw.Length)
		st.path = append(st.path, string(parts.Node().Data))
	}
	if k == isKeyValue {
		st.value = s.value(node.Value(), depth)
	}
	return st
}

// value copies one: the parser overwrites it.
func (s *syntax) value(node *unstable.Node, depth int) written {
	v := scalar(node)
	switch {
	case v.kind == isList:
		for items := node.Children(); len(v.items) <= maxEntries && items.Next(); {
			item := scalar(items.Node())
			switch {
			case item.kind == isTable && depth > 0:
				item.members = s.members(items.Node(), depth-1)
			case item.kind == isList:
				for inner := items.Node().Children(); len(item.items) <= maxPair && inner.Next(); {
					item.items = append(item.items, scalar(inner.Node()))
				}
			}
			v.items = append(v.items, item)
		}
	case v.kind == isTable && depth > 0:
		v.members = s.members(node, depth-1)
	}
	return v
}

func (s *syntax) members(node *unstable.Node, depth int) (all []statement) {
	for members := node.Children(); members.Next(); {
		all = append(all, s.statement(isKeyValue, members.Node(), depth))
	}
	return all
}

// scalar is a value without what is in it.
func scalar(node *unstable.Node) written {
	v := written{kind: kinds[node.Kind], text: string(node.Data), offset: -1}
	if raw := node.Raw; raw.Length > 0 { // the parser notes none for lists
		v.offset = int(raw.Offset)
	}
	return v
}
