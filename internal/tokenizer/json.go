package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// member is one name and value of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members splits a valid JSON object, in order. encoding/json would take the last of two equal
// names and ignore case; a tokenizer whose meaning depends on that is refused. More than limit
// members are an error.
func members(object []byte, limit int) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if tok, err := dec.Token(); err != nil {
		return nil, err
	} else if tok != json.Delim('{') {
		return nil, fmt.Errorf("found %s where an object is needed", clip(object))
	}
	var all []member
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: tok.(string)} // the decoder lets nothing else stand here
		if seen[m.name] {
			return nil, fmt.Errorf("%s occurs twice in one object", quote(m.name))
		}
		if len(all) == limit {
			return nil, fmt.Errorf("%w: an object has more than %d members, the limit", ErrUnsupported, limit)
		}
		seen[m.name] = true
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// find returns the value of a name, or nil.
func find(all []member, name string) json.RawMessage {
	for _, m := range all {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// same reports whether a JSON value has the same meaning as an expected one. A much longer value
// does not, and is not parsed: it may have megabytes.
func same(got, want json.RawMessage) bool {
	const longest = 4096
	var x, y any
	return len(got) <= longest && json.Unmarshal(got, &x) == nil && json.Unmarshal(want, &y) == nil && reflect.DeepEqual(x, y)
}

// clip shortens a file's text for a message, and quotes it if it could break the line or control a
// terminal.
func clip[T ~string | ~[]byte](text T) string {
	short := shorten(string(text))
	if strings.ContainsFunc(short, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(short)
	}
	return short
}

// quote is clip for text inside quotes.
func quote(text string) string { return strconv.Quote(shorten(text)) }

func shorten(text string) string {
	const most = 60
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
