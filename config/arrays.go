package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// array is a section that a configuration may have several times: an array of tables, such as [[eval]]. Its rows in the schema have
// keys such as "eval.name". Each table has a copy of them: "eval[1].name" is the key of the first one's name.
type array struct {
	section string
	most    int // tables
	table   any // a table in which no key was given
}

var arrays = []array{
	{"data.source", maxSources, Source{Weight: 1}},
	{"eval", maxEvals, Eval{}},
	{"optimizer.group", maxGroups, Group{LRScale: 1}},
}

func arrayOf(section string) *array {
	if i := slices.IndexFunc(arrays, func(a array) bool { return a.section == section }); i >= 0 {
		return &arrays[i]
	}
	return nil
}

// bracketed returns the header of a section.
func bracketed(section string) string {
	if arrayOf(section) != nil {
		return "[[" + section + "]]"
	}
	return "[" + section + "]"
}

// inTable returns an array's row for its nth table, from 1.
func (f *field) inTable(nth int) *field {
	own := *f
	own.key, own.nth = fmt.Sprintf("%s[%d].%s", f.section(), nth, f.name()), nth
	return &own
}

// row returns the key of the row in the schema: "eval.name" for "eval[1].name".
func (f *field) row() string { return f.section() + "." + f.name() }

// lookupInTable returns the row of a key such as "eval[1].name", or nil.
func lookupInTable(key string) *field {
	before, after, found := strings.Cut(key, "[")
	number, name, closed := strings.Cut(after, "].")
	nth, err := strconv.Atoi(number)
	a := arrayOf(before)
	if !found || !closed || err != nil || a == nil || nth < 1 || nth > a.most || number != strconv.Itoa(nth) {
		return nil
	}
	if f := lookup(before + "." + name); f != nil && f.section() == before {
		return f.inTable(nth)
	}
	return nil
}

// fields returns the schema's rows for a configuration: an array has its rows once for each table.
func (c *Config) fields() []*field { return fieldsOf(c) }

// fieldsOf returns the rows of several configurations; see fields. Some may have fewer tables.
func fieldsOf(configs ...*Config) []*field {
	all := make([]*field, 0, len(schema))
	for from := 0; from < len(schema); {
		section, to := schema[from].section(), from
		for to < len(schema) && schema[to].section() == section {
			to++
		}
		if arrayOf(section) == nil {
			for i := from; i < to; i++ {
				all = append(all, &schema[i])
			}
		} else {
			n := 0
			for _, c := range configs {
				n = max(n, c.tables(section).Len())
			}
			for nth := range n {
				for i := from; i < to; i++ {
					all = append(all, schema[i].inTable(nth+1))
				}
			}
		}
		from = to
	}
	return all
}

// tables returns an array's slice in c.
func (c *Config) tables(section string) reflect.Value {
	for _, p := range places {
		if p.section == section {
			return reflect.ValueOf(c).Elem().FieldByIndex(p.array)
		}
	}
	panic("config: no field has [[" + section + "]]")
}

// has reports whether the configuration has the row's table.
func (c *Config) has(f *field) bool { return f.nth == 0 || f.nth <= c.tables(f.section()).Len() }

// makeTables gives an array n tables in which no key was given.
func (c *Config) makeTables(section string, n int) {
	if n == 0 {
		return
	}
	list := c.tables(section)
	list.Set(reflect.MakeSlice(list.Type(), n, n))
	for i := range n {
		list.Index(i).Set(reflect.ValueOf(arrayOf(section).table))
	}
}

// clone returns a copy whose tables and given keys can be changed.
func (c *Config) clone() *Config {
	own := *c
	for _, a := range arrays {
		if list := own.tables(a.section); !list.IsNil() {
			list.Set(reflect.AppendSlice(reflect.MakeSlice(list.Type(), 0, list.Len()), list))
		}
	}
	if own.given = maps.Clone(c.given); own.given == nil {
		own.given = make(map[string]Pos)
	}
	return &own
}

// startTable counts a table of an array and returns its number; 0 if there are too many.
func (r *reader) startTable(a *array, pos Pos) int {
	if r.tables[a.section] == a.most {
		r.fail(&Error{Pos: pos, Key: a.section, Msg: fmt.Sprintf("there are more than %d %s", a.most, bracketed(a.section)),
			Hint: fmt.Sprintf("use at most %d", a.most)})
		return 0
	}
	if r.tables == nil {
		r.tables = make(map[string]int)
	}
	r.tables[a.section]++
	nth := r.tables[a.section]
	r.headers[fmt.Sprintf("%s[%d]", a.section, nth)] = pos
	return nth
}

// arrayValue reads an array that stands on one line: eval = [{name = "x"}].
func (d *document) arrayValue(a *array, path []string, v written, pos Pos) {
	expected := func(found entry, pos Pos) {
		d.suspectSection(a.section)
		d.fail(&Error{Pos: pos, Key: a.section, Msg: "expected a list of tables, found " + found.describe(),
			Hint: fmt.Sprintf("write %s and its keys below", bracketed(a.section))})
	}
	if v.kind != isList {
		expected(entry{kind: v.kind, text: v.text}, pos)
		return
	}
	for _, item := range v.items {
		at := pos
		if item.offset >= 0 {
			at = d.pos(item.offset)
		}
		if item.kind != isTable {
			expected(entry{kind: item.kind, text: item.text}, at)
			return
		}
		nth := d.startTable(a, at)
		if nth == 0 {
			return
		}
		for _, member := range item.members {
			if d.full() {
				return
			}
			d.keyValue(path, nth, member)
		}
	}
}

// dropTables forgets an array: a --set replaces it.
func (r *reader) dropTables(a *array) {
	maps.DeleteFunc(r.entries, func(key string, _ entry) bool {
		f := lookup(key)
		return f != nil && f.section() == a.section
	})
	delete(r.tables, a.section)
}
