package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// entry is a key with a value as written.
type entry struct {
	key   string
	pos   Pos // of the value
	kind  kind
	text  string  // a string's content, any other scalar as written
	items []entry // a list's, without keys
}

// assign sets the field in c to the value of an entry, and checks it.
func (f *field) assign(c *Config, e entry, stored bool, env func(string) (string, bool)) *Error {
	v, err := f.decode(e, env)
	if err != nil {
		return err
	}
	if f.key == "data.tokenizer" && !stored {
		v = asPath(v.(string))
	}
	if err := f.checkValue(v, e.pos, stored); err != nil {
		return err
	}
	f.store(c, v)
	return nil
}

// checkValue judges a value by itself.
func (f *field) checkValue(v any, pos Pos, stored bool) *Error {
	check := f.check
	if stored && f.stored != nil {
		check = f.stored
	}
	if check == nil {
		return nil
	}
	if msg, hint := check.judge(v); msg != "" {
		return &Error{Pos: pos, Key: f.key, Msg: msg, Hint: hint}
	}
	return nil
}

// decode converts an entry to a value of the field's type.
func (f *field) decode(e entry, env func(string) (string, bool)) (any, *Error) {
	switch f.load(&Config{}).(type) {
	case int64:
		if e.kind == isInteger {
			return f.decodeInt(e)
		}
	case float64:
		if e.kind == isFloat || e.kind == isInteger {
			return f.decodeFloat(e)
		}
	case bool:
		if e.kind == isBool {
			return e.text == "true", nil
		}
	case string:
		if e.kind == isString {
			return f.decodeString(e, env)
		}
	case []int64:
		if e.kind == isInteger {
			return f.decodeInts([]entry{e})
		}
		if e.kind == isList {
			return f.decodeInts(e.items)
		}
	case [][2]float64:
		if e.kind == isList {
			return f.decodePairs(e.items)
		}
	case []string:
		if e.kind == isList {
			return f.decodeList(e.items, env)
		}
		if e.kind == isString && e.pos.Set != "" {
			return f.decodeList([]entry{e}, env)
		}
	}
	return nil, f.wrongType(e)
}

func (f *field) decodeInt(e entry) (any, *Error) {
	n, err := strconv.ParseInt(e.text, 0, 64)
	if err != nil {
		return nil, &Error{Pos: e.pos, Key: f.key, Msg: oneLine(e.text) + " does not fit a 64-bit integer"}
	}
	return n, nil
}

func (f *field) decodeFloat(e entry) (any, *Error) {
	if e.kind == isInteger {
		// Integers may have base 2, 8 or 16, which ParseFloat does not read.
		if n, err := strconv.ParseInt(e.text, 0, 64); err == nil {
			return float64(n), nil
		}
	}
	x, err := strconv.ParseFloat(strings.ReplaceAll(e.text, "_", ""), 64)
	if err != nil {
		return nil, &Error{Pos: e.pos, Key: f.key, Msg: oneLine(e.text) + " does not fit a 64-bit float"}
	}
	if x == 0 {
		return 0.0, nil // not -0, which would differ as text
	}
	return x, nil
}

func (f *field) decodeString(e entry, env func(string) (string, bool)) (any, *Error) {
	s := e.text
	if f.path {
		var msg, hint string
		if s, msg, hint = expand(s, env); msg != "" {
			return nil, &Error{Pos: e.pos, Key: f.key, Msg: msg, Hint: hint}
		}
	}
	if !utf8.ValidString(s) {
		return nil, &Error{Pos: e.pos, Key: f.key, Msg: oneLine(s) + " is not valid UTF-8"}
	}
	return s, nil
}

func (f *field) decodeList(items []entry, env func(string) (string, bool)) (any, *Error) {
	var list []string // nil for [], as for a key that was not given
	for _, item := range items {
		if item.kind != isString {
			return nil, f.wrongType(item)
		}
		s, err := f.decodeString(item, env)
		if err != nil {
			return nil, err
		}
		list = append(list, s.(string))
	}
	return list, nil
}

func (f *field) decodeInts(items []entry) (any, *Error) {
	list := make([]int64, 0, len(items))
	for _, item := range items {
		if item.kind != isInteger {
			return nil, f.wrongType(item)
		}
		n, err := f.decodeInt(item)
		if err != nil {
			return nil, err
		}
		list = append(list, n.(int64))
	}
	return list, nil
}

// decodePairs reads pairs of an integer and a number.
func (f *field) decodePairs(items []entry) (any, *Error) {
	var list [][2]float64 // nil for [], as for a key that was not given
	for _, item := range items {
		if item.kind != isList || len(item.items) != maxPair {
			return nil, f.wrongType(item)
		}
		var pair [2]float64
		for i, number := range item.items {
			if number.kind != isInteger && (i == 0 || number.kind != isFloat) {
				return nil, f.wrongType(number)
			}
			v, err := f.decodeFloat(number)
			if err != nil {
				return nil, err
			}
			pair[i] = v.(float64)
		}
		list = append(list, pair)
	}
	return list, nil
}

// wrongType names the type that the key has, what was found, and an example.
func (f *field) wrongType(e entry) *Error {
	want := map[string]string{
		"int64": "an integer", "float64": "a number", "bool": "true or false",
		"string": "a string", "[]string": "a list of strings", "[]int64": "an integer, or a list of integers",
		"[][2]float64": "a list of pairs of an integer and a number",
	}[fmt.Sprintf("%T", f.load(&Config{}))]
	example := f.name() + " = " + f.example
	if e.pos.Set != "" {
		example = fmt.Sprintf("--set '%s=%s'", f.key, f.example)
	}
	if text, ok := f.unquote(e); ok {
		example = fmt.Sprintf("%s = %s, without quotes", f.name(), text)
		if e.pos.Set != "" {
			example = fmt.Sprintf("--set %s=%s, without quotes", f.key, text)
		}
	}
	return &Error{Pos: e.pos, Key: f.key, Msg: "expected " + want + ", found " + e.describe(), Hint: "write " + example}
}

// unquote returns the text of a string in place of a number, true or false, if that text is a valid value of the key.
func (f *field) unquote(e entry) (text string, ok bool) {
	switch f.load(&Config{}).(type) {
	case int64, float64, bool:
	default:
		return "", false
	}
	text = strings.TrimSpace(e.text)
	meant := setEntry(f.key, text, e.pos)
	if e.kind != isString || meant.kind == isString || meant.text != text {
		return "", false
	}
	v, err := f.decode(meant, nil)
	return text, err == nil && f.checkValue(v, e.pos, false) == nil
}

func (e entry) describe() string {
	switch e.kind {
	case isString:
		return "the string " + quoted(e.text)
	case isInteger:
		return "the integer " + oneLine(e.text)
	case isFloat:
		return "the number " + oneLine(e.text)
	case isBool:
		return "the boolean " + e.text
	case isList:
		return "a list"
	case isTable:
		return "a table"
	}
	return "the date or time " + oneLine(e.text)
}
