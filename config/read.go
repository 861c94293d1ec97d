package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// reader splits TOML into entries of known keys, each with its position,
// and collects errors.
type reader struct {
	file    string
	stored  bool // the configuration that a run has stored: lenient
	entries map[string]entry
	headers map[string]Pos // where each [section] begins
	tables  map[string]int // how many tables each array has
	errs    Errors

	// suspect keys have a wrong value, or were probably meant by an unknown
	// key. Comparing them with other keys would only repeat that error in other words.
	suspect map[string]bool

	// incomplete: the file was not read to its end.
	incomplete bool
}

func newReader(file string) *reader {
	return &reader{
		file:    file,
		entries: make(map[string]entry),
		headers: make(map[string]Pos),
		suspect: make(map[string]bool),
	}
}

func (r *reader) fail(err *Error) { r.errs = append(r.errs, err) }

// readFile reads the file's text. It continues after an error if it can. After invalid TOML the
// rest of the file has no certain meaning and is skipped.
func (r *reader) readFile(text []byte) {
	if len(text) > MaxFileBytes {
		r.fail(&Error{Pos: Pos{File: r.file}, Msg: fmt.Sprintf("the file is larger than %d bytes, the limit of a config file", MaxFileBytes)})
		r.incomplete = true
		return
	}
	text = bytes.TrimPrefix(text, []byte("\xEF\xBB\xBF")) // the byte order mark of some editors
	d := &document{reader: r, text: slices.Clip(text)}
	syntax := newSyntax(d.text)
	for !d.full() {
		st, ok := syntax.next()
		if !ok {
			break
		}
		switch {
		case st.kind != isKeyValue:
			d.header(st)
		case !d.skip:
			d.keyValue(d.section, d.nth, st)
		}
	}
	switch offset, msg := syntax.err(); {
	case d.full():
		r.fail(&Error{Pos: d.pos(len(text)), Msg: "too many errors; stopped reading", Hint: "fix these first"})
		r.incomplete = true
	case msg != "":
		e := &Error{Pos: Pos{File: r.file}, Msg: printable(msg), Hint: "the rest of the file was not read"}
		if offset >= 0 {
			e.Pos = d.pos(offset)
		}
		r.fail(e)
		r.incomplete = true
	case len(r.errs) == 0:
		d.checkGrammar()
	}
}

// document is a TOML text and the parser's position in it.
type document struct {
	*reader
	text    []byte
	section []string // of the last header
	nth     int      // the table of the last header, if its section is an array
	skip    bool     // the last header is unknown
	set     Pos      // of a --set: the position of all of the text
}

// full reports whether there are so many errors that reading stops: the file may not be a config.
func (d *document) full() bool { return len(d.errs) >= maxErrors }

// pos turns an offset into row and column.
func (d *document) pos(offset int) Pos {
	if d.set.Set != "" {
		return d.set
	}
	before := d.text[:offset]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return Pos{File: d.file, Row: bytes.Count(before, []byte("\n")) + 1, Col: utf8.RuneCount(line) + 1}
}

// header reads [section] or [[section]].
func (d *document) header(st statement) {
	path, pos := st.path, d.pos(st.from)
	name := joined(path)
	d.section, d.nth, d.skip = path, 0, false

	first, again := d.headers[name]
	a := arrayOf(name)
	switch {
	case !slices.Contains(sections, name):
		d.skip = true
		d.fail(d.unknownSection(path, pos))
	case a != nil && st.kind == isSection:
		d.skip = true
		d.suspectSection(name)
		d.fail(&Error{Pos: pos, Key: name, Msg: "there may be several of this section", Hint: fmt.Sprintf("write [[%s]]", name)})
	case a != nil:
		d.nth = d.startTable(a, pos)
		d.skip = d.nth == 0
	case st.kind == isSectionOfList:
		d.fail(&Error{Pos: pos, Key: name, Msg: "a section has single brackets", Hint: fmt.Sprintf("write [%s]", name)})
	case again:
		d.fail(&Error{Pos: pos, Key: name, Msg: fmt.Sprintf("the section [%s] exists already, at %s", name, first), Hint: "merge the two"})
	default:
		d.headers[name] = pos
	}
}

// keyValue reads key = value, below the path of its section. nth is the table of an array, else 0.
func (d *document) keyValue(section []string, nth int, st statement) {
	path, pos := slices.Concat(section, st.path), d.pos(st.from)
	key := joined(path)
	names := slices.Contains(sections, key) // a section
	if a := arrayOf(key); a != nil {
		d.arrayValue(a, path, st.value, pos)
		return
	}
	if names && st.value.kind == isTable {
		for _, member := range st.value.members {
			if d.full() {
				return
			}
			d.keyValue(path, 0, member)
		}
		return
	}
	if f := lookup(key); f != nil && nth > 0 && f.section() == joined(section) {
		key = f.inTable(nth).key
	}
	if now := renamed[key]; d.stored && now != "" {
		key, path = now, strings.Split(now, ".")
	}
	first, again := d.entries[key]
	switch {
	case names:
		d.suspectSection(key)
		d.fail(&Error{Pos: pos, Key: key, Msg: "this is a section, not a key", Hint: fmt.Sprintf("write [%s] and its keys below", key)})
	case lookup(key) == nil:
		d.fail(d.unknownKey(path, pos))
	case lookup(key).nth == 0 && arrayOf(lookup(key).section()) != nil:
		f := lookup(key)
		d.suspectSection(f.section())
		d.fail(&Error{Pos: pos, Key: key, Msg: "there may be several of its section",
			Hint: fmt.Sprintf("write %s and %s = … below", bracketed(f.section()), f.name())})
	case again:
		d.fail(&Error{Pos: pos, Key: key, Msg: fmt.Sprintf("the key is set already, at %s", first.pos), Hint: "remove one of the two"})
	default:
		// Blanks and one '=' stand between a key and its value.
		after := d.text[st.to:]
		gap := len(after) - len(bytes.TrimLeft(after, " \t="))
		d.entries[key] = d.entry(key, st.value, d.pos(st.to+gap))
	}
}

// entry makes one of a value that begins at pos.
func (d *document) entry(key string, v written, pos Pos) entry {
	e := entry{key: key, pos: pos, kind: v.kind, text: v.text}
	for _, item := range v.items {
		at := pos
		if item.offset >= 0 {
			at = d.pos(item.offset)
		}
		inner := d.entry("", item, at)
		e.items = append(e.items, inner)
	}
	return e
}

// checkGrammar checks the rules of TOML that concern several
// lines, such as that nothing may be added to an inline table.
func (d *document) checkGrammar() {
	err := toml.Unmarshal(d.text, new(map[string]any))
	if err == nil {
		return
	}
	e := &Error{Pos: Pos{File: d.file}, Msg: printable(strings.TrimPrefix(err.Error(), "toml: "))}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		row, col := at.Position() // col counts bytes
		line := bytes.Split(d.text, []byte("\n"))[row-1]
		e.Pos.Row, e.Pos.Col = row, utf8.RuneCount(line[:col-1])+1
	}
	d.fail(e)
	d.incomplete = true
}
