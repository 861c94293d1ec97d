package parquet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// shape is how a node of the schema becomes JSON.
type shape int

const (
	isLeaf shape = iota
	isObject
	isList // a group with a repeated child, of which each is an element
	isMap  // a group with repeated pairs of a key and a value
)

// node is a column, or a group of columns.
type node struct {
	name     string
	shape    shape
	optional bool
	repeated bool // without a list around it: an array
	def, rep int  // levels at which the node itself is present
	first    int  // its first leaf among those that are read
	leaves   int
	children []*node
	column   *parquet.Column // of a leaf
	write    func(dst []byte, v parquet.Value) ([]byte, error)
	quoted   []byte // the name as JSON, with a colon
}

// columnError is an error about a column.
func columnError(name string, format string, args ...any) error {
	return fmt.Errorf("column %.100q: "+format, append([]any{name}, args...)...)
}

// newNode returns the node of a column and appends its leaves.
func newNode(c *parquet.Column, leaves *[]*parquet.Column) (n *node, err error) {
	n = &node{name: c.Name(), optional: c.Optional(), repeated: c.Repeated(), def: c.MaxDefinitionLevel(), rep: c.MaxRepetitionLevel(),
		first: len(*leaves)}
	name, err := json.Marshal(n.name)
	if err != nil {
		return nil, err
	}
	n.quoted = append(name, ':')
	if c.Leaf() {
		if len(*leaves) >= limitColumns {
			return nil, fmt.Errorf("the rows have more than %d columns", limitColumns)
		}
		n.column, n.leaves = c, 1
		*leaves = append(*leaves, c)
		n.write, err = writerOf(c)
		return n, err
	}
	children := c.Columns()
	switch {
	case len(children) == 1 && children[0].Repeated() && isListType(c):
		n.shape = isList
		// Since 2014 the repeated group has one child, the element. Before, it was the element itself.
		if inner := children[0]; !inner.Leaf() && len(inner.Columns()) == 1 && inner.Name() != "array" && inner.Name() != n.name+"_tuple" {
			n.def, n.rep = inner.MaxDefinitionLevel(), inner.MaxRepetitionLevel()
			children = inner.Columns()
		} else {
			n.def, n.rep = inner.MaxDefinitionLevel(), inner.MaxRepetitionLevel()
			element, err := newNode(inner, leaves)
			if err != nil {
				return nil, err
			}
			element.repeated = false
			n.children, n.leaves = []*node{element}, element.leaves
			return n, nil
		}
	case len(children) == 1 && children[0].Repeated() && isMapType(c) && len(children[0].Columns()) == 2:
		n.shape = isMap
		n.def, n.rep = children[0].MaxDefinitionLevel(), children[0].MaxRepetitionLevel()
		children = children[0].Columns()
	default:
		n.shape = isObject
	}
	for _, child := range children {
		m, err := newNode(child, leaves)
		if err != nil {
			return nil, err
		}
		n.children, n.leaves = append(n.children, m), n.leaves+m.leaves
	}
	if n.leaves == 0 {
		return nil, fmt.Errorf("the group has no columns")
	}
	return n, nil
}

func isListType(c *parquet.Column) bool {
	t := c.Type().LogicalType()
	if t == nil {
		return false
	}
	_, ok := t.Value.(*format.ListType)
	return ok
}

func isMapType(c *parquet.Column) bool {
	t := c.Type().LogicalType()
	if t == nil {
		return false
	}
	_, ok := t.Value.(*format.MapType)
	return ok
}

// features are the names and kinds of columns that Hugging Face's datasets writes into a file.
type features struct {
	Info struct {
		Features map[string]json.RawMessage `json:"features"`
	} `json:"info"`
}

// mediaOf returns the kind of each top column that datasets marks as an image, audio or video.
func mediaOf(f *parquet.File) map[string]string {
	text, ok := f.Lookup("huggingface")
	if !ok {
		return nil
	}
	var h features
	if json.Unmarshal([]byte(text), &h) != nil { // it is only a help
		return nil
	}
	media := make(map[string]string)
	for name, feature := range h.Info.Features {
		for _, kind := range []string{"Image", "Audio", "Video", "Pdf"} {
			if strings.Contains(string(feature), `"_type": "`+kind+`"`) || strings.Contains(string(feature), `"_type":"`+kind+`"`) {
				media[name] = strings.ToLower(kind)
			}
		}
	}
	return media
}

// checkMedia refuses columns that hold bytes and are not read: they are a part of the data that a model would not see.
func checkMedia(f *parquet.File) error {
	media := mediaOf(f)
	for _, c := range f.Root().Columns() {
		name := c.Name()
		kind := media[name]
		if kind == "" && isBytesAndPath(c) {
			kind = "image"
		}
		if kind != "" {
			return columnError(name, "it holds data of the kind %q, and a model of text can't learn from it; leave the column out: "+
				"datasets.Dataset.remove_columns(%[1]q), then to_parquet", kind, name)
		}
	}
	return nil
}

// isBytesAndPath reports whether a column, or the elements of a list, are how datasets stores a file.
func isBytesAndPath(c *parquet.Column) bool {
	var names []string
	for _, child := range c.Columns() {
		names = append(names, child.Name())
	}
	if slices.Contains(names, "bytes") && slices.Contains(names, "path") && len(names) == 2 {
		return true
	}
	return len(names) == 1 && isBytesAndPath(c.Columns()[0])
}
