package samples

import (
	"encoding/json"
	"fmt"
)

// jsonValue walks through a value of nested arrays, whose nesting is its shape. The text must be
// valid JSON.
type jsonValue struct {
	text  []byte
	at    int
	shape []int
	rank  int // -1: unknown so far
	leaf  func(token []byte, isText bool) error
}

// walkJSON returns the shape of a value. It calls leaf with each number and each text, in order. An
// error comes with its position in the text.
func walkJSON(text []byte, leaf func(token []byte, isText bool) error) (shape []int, at int, err error) {
	v := &jsonValue{text: text, rank: -1, leaf: leaf}
	err = v.walk(0)
	return v.shape, v.at, err
}

func (v *jsonValue) walk(depth int) error {
	v.space()
	switch c := v.text[v.at]; c {
	case '[':
		return v.array(depth)
	case '{', 't', 'f', 'n':
		what := map[byte]string{'{': "an object", 't': "true", 'f': "false", 'n': "null"}[c]
		return fmt.Errorf("%w: found %s, which is neither a number nor an array of numbers", ErrFormat, what)
	}
	if v.rank == -1 {
		v.rank = depth
	}
	if depth != v.rank || depth < len(v.shape) {
		return fmt.Errorf("%w: a value is next to an array: all elements must have the same nesting", ErrFormat)
	}
	token := v.raw()
	value, isText := token, token[0] == '"'
	if isText {
		var text string
		_ = json.Unmarshal(token, &text) // it is valid
		value = []byte(text)
	}
	if err := v.leaf(value, isText); err != nil {
		return err
	}
	v.at += len(token)
	return nil
}

func (v *jsonValue) array(depth int) error {
	switch {
	case depth == limitRank:
		return fmt.Errorf("%w: arrays are nested more than %d deep", ErrFormat, limitRank)
	case v.rank != -1 && depth >= v.rank:
		return fmt.Errorf("%w: an array is next to a value: all elements must have the same nesting", ErrFormat)
	}
	known := depth < len(v.shape)
	if !known {
		v.shape = append(v.shape, 0)
	}
	begin, count := v.at, 0
	for v.at++; ; v.at++ { // past the bracket, or the comma
		if v.space(); v.text[v.at] == ']' {
			break
		}
		if err := v.walk(depth + 1); err != nil {
			return err
		}
		count++
		if v.space(); v.text[v.at] == ']' {
			break
		}
	}
	if known && count != v.shape[depth] {
		v.at = begin
		return fmt.Errorf("%w: an array of %d elements is next to one of %d: arrays of the same depth must have the same length", ErrFormat,
			count,
			v.shape[depth])
	}
	if count == 0 {
		v.at = begin
		return fmt.Errorf("%w: an array has no elements", ErrFormat)
	}
	v.shape[depth] = count
	v.at++
	return nil
}

func (v *jsonValue) space() {
	for v.at < len(v.text) {
		switch v.text[v.at] {
		case ' ', '\t', '\r', '\n':
			v.at++
		default:
			return
		}
	}
}

// raw returns the number, or the text in quotes, that starts here.
func (v *jsonValue) raw() []byte {
	rest := v.text[v.at:]
	if rest[0] != '"' {
		for i, c := range rest {
			if c == ',' || c == ']' || c <= ' ' {
				return rest[:i]
			}
		}
		return rest
	}
	for i := 1; ; i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return rest[:i+1]
		}
	}
}
