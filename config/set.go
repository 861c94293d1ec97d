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
	case arrayOf(key) != nil:
		r.setArray(arrayOf(key), path, value, pos)
	case slices.Contains(sections, key):
		r.fail(&Error{Pos: pos, Key: key, Msg: "this is a section, not a key", Hint: fmt.Sprintf("write --set %s.key=value", key)})
	case lookup(key) == nil:
		r.fail(r.unknownKey(path, pos))
	case arrayOf(lookup(key).section()) != nil && (lookup(key).nth == 0 || lookup(key).nth > r.tables[lookup(key).section()]):
		section := lookup(key).section()
		r.fail(&Error{Pos: pos, Key: key, Msg: fmt.Sprintf("the config has %d %s", r.tables[section], bracketed(section)),
			Hint: fmt.Sprintf("write --set '%s=[{%s = …}]' to replace all of them", section, keysOf(section)[0])})
	default:
		r.entries[key] = setEntry(key, value, pos)
	}
}

// setArray replaces the tables of an array.
func (r *reader) setArray(a *array, path []string, value string, pos Pos) {
	r.dropTables(a)
	d := &document{reader: r, text: slices.Clip([]byte("x = " + value)), set: pos}
	syntax := newSyntax(d.text)
	st, ok := syntax.next()
	_, more := syntax.next()
	if _, msg := syntax.err(); !ok || more || msg != "" {
		st.value = written{kind: isString, text: value}
	}
	d.arrayValue(a, path, st.value, pos)
}

// setEntry reads the value as TOML, or as a plain string if it is not TOML.
func setEntry(key, value string, pos Pos) entry {
	d := &document{reader: &reader{}, text: slices.Clip([]byte("x = " + value))}
	syntax := newSyntax(d.text)
	if st, ok := syntax.next(); ok {
		e := d.entry(key, st.value, pos)
		for i := range e.items {
			e.items[i].pos = pos
			for k := range e.items[i].items {
				e.items[i].items[k].pos = pos
			}
		}
		_, more := syntax.next()
		if _, msg := syntax.err(); !more && msg == "" {
			return e
		}
	}
	return entry{key: key, pos: pos, kind: isString, text: value}
}
