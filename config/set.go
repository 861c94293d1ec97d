package config

import (
	"fmt"
	"slices"
	"strings"
)

// readSet reads the text after the nth --set: section.key=value.
func (r *reader) readSet(nth int, set string) {
	key, value, found := strings.Cut(set, "=")
	key = strings.TrimSpace(key)
	pos := Pos{Set: set, nth: nth}
	switch path := strings.Split(key, "."); {
	case !found || key == "":
		pos.Set = quoted(set) // it may be empty, which would be no --set
		r.fail(&Error{Pos: pos, Msg: "this is not key=value", Hint: "write --set run.steps=1000"})
	case slices.Contains(sections, key):
		r.fail(&Error{Pos: pos, Key: key, Msg: "this is a section, not a key", Hint: fmt.Sprintf("write --set %s.key=value", key)})
	case lookup(key) == nil:
		r.fail(r.unknownKey(path, pos))
	default:
		r.entries[key] = setEntry(key, value, pos)
	}
}

// setEntry reads the value as TOML, or as a plain string if it is not TOML.
func setEntry(key, value string, pos Pos) entry {
	d := &document{reader: &reader{}, text: slices.Clip([]byte("x = " + value))}
	syntax := newSyntax(d.text)
	if st, ok := syntax.next(); ok {
		e := d.entry(key, st.value, pos)
		for i := range e.items {
			e.items[i].pos = pos
		}
		_, more := syntax.next()
		if _, msg := syntax.err(); !more && msg == "" {
			return e
		}
	}
	return entry{key: key, pos: pos, kind: isString, text: value}
}
