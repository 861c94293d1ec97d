package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// reader takes TOML apart into entries of known keys, each with its position,
// and collects what does not belong.
type reader struct {
	file    string
	entries map[string]entry
	headers map[string]Pos // where each [section] begins
	errs    Errors

	// suspect keys were given in a way that is wrong, or are what an unknown key
	// was probably meant to be. To judge their values against others would only
	// repeat that mistake in other words.
	suspect map[string]bool

	// incomplete says that the file was not read to its end.
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

// readFile reads the file's text. It goes on after a mistake where it can: the
// rest of a file after bad TOML has no certain meaning and is left.
func (r *reader) readFile(text []byte) {
	if len(text) > MaxFileBytes {
		r.fail(&Error{Pos: Pos{File: r.file}, Msg: fmt.Sprintf("the file is larger than %d bytes, which no config is", MaxFileBytes)})
		r.incomplete = true
		return
	}
	text = bytes.TrimPrefix(text, []byte("\xEF\xBB\xBF")) // the byte order mark of some editors
	d := &document{reader: r, text: slices.Clip(text)}
	d.parser.Reset(d.text)
	for !d.full() && d.parser.NextExpression() {
		switch node := d.parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			d.header(node)
		case unstable.KeyValue:
			if !d.skip {
				d.keyValue(d.section, node)
			}
		}
	}
	switch err := d.parser.Error(); {
	case d.full():
		r.fail(&Error{Pos: d.pos(len(text)), Msg: "there are too many mistakes to go on", Hint: "the file may not have been read to its end"})
		r.incomplete = true
	case err != nil:
		r.fail(d.syntaxError(err))
		r.incomplete = true
	case len(r.errs) == 0:
		d.checkGrammar()
	}
}

// document is one TOML text on its way through the parser.
type document struct {
	*reader
	text    []byte
	parser  unstable.Parser
	section []string // of the last header
	skip    bool     // the last header is unknown
}

// full bounds the work on a file that is no config at all.
func (d *document) full() bool { return len(d.errs) >= MaxErrors }

// pos turns an offset into row and column.
func (d *document) pos(offset int) Pos {
	before := d.text[:offset]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return Pos{File: d.file, Row: bytes.Count(before, []byte("\n")) + 1, Col: utf8.RuneCount(line) + 1}
}

// path collects the parts of a dotted key and the place where it stands.
func (d *document) path(parts unstable.Iterator) (path []string, from, to int) {
	for parts.Next() {
		raw := parts.Node().Raw
		if path == nil {
			from = int(raw.Offset)
		}
		to = int(raw.Offset + raw.Length)
		path = append(path, string(parts.Node().Data))
	}
	return path, from, to
}

// header reads [section].
func (d *document) header(node *unstable.Node) {
	path, from, _ := d.path(node.Key())
	pos, name := d.pos(from), joined(path)
	d.section, d.skip = path, false

	first, again := d.headers[name]
	switch {
	case len(path) != 1 || !slices.Contains(sections, name):
		d.skip = true
		d.fail(d.unknownSection(path, pos))
	case node.Kind == unstable.ArrayTable:
		d.fail(&Error{Pos: pos, Key: name, Msg: "a section stands in single brackets", Hint: fmt.Sprintf("write [%s]", name)})
	case again:
		d.fail(&Error{Pos: pos, Key: name, Msg: fmt.Sprintf("the section [%s] began at %s already", name, first), Hint: "join the two"})
	default:
		d.headers[name] = pos
	}
}

// keyValue reads key = value, below the path of its section.
func (d *document) keyValue(section []string, node *unstable.Node) {
	path, from, to := d.path(node.Key())
	path = slices.Concat(section, path)
	pos, value := d.pos(from), node.Value()

	isSection := len(path) == 1 && slices.Contains(sections, path[0])
	if isSection && value.Kind == unstable.InlineTable {
		for items := value.Children(); !d.full() && items.Next(); {
			d.keyValue(path, items.Node())
		}
		return
	}
	key := joined(path)
	first, again := d.entries[key]
	switch {
	case isSection:
		d.suspectSection(key)
		d.fail(&Error{Pos: pos, Key: key, Msg: "this is a section, not a key", Hint: fmt.Sprintf("write [%s] and its keys below", key)})
	case len(path) != 2 || lookup(key) == nil:
		d.fail(d.unknownKey(path, pos))
	case again:
		d.fail(&Error{Pos: pos, Key: key, Msg: fmt.Sprintf("the key was given at %s already", first.pos), Hint: "keep one of the two"})
	default:
		// Blanks and one '=' stand between a key and its value.
		after := d.text[to:]
		gap := len(after) - len(bytes.TrimLeft(after, " \t="))
		d.entries[key] = d.entry(key, value, d.pos(to+gap))
	}
}

// entry keeps what the parser will overwrite.
func (d *document) entry(key string, value *unstable.Node, pos Pos) entry {
	e := entry{key: key, pos: pos, kind: value.Kind, text: string(value.Data)}
	if e.kind != unstable.Array {
		return e
	}
	for items := value.Children(); len(e.items) <= maxEntries && items.Next(); {
		item := entry{pos: pos, kind: items.Node().Kind, text: string(items.Node().Data)}
		if raw := items.Node().Raw; raw.Length > 0 { // the parser notes none for lists
			item.pos = d.pos(int(raw.Offset))
		}
		e.items = append(e.items, item)
	}
	return e
}

func (d *document) syntaxError(err error) *Error {
	e := &Error{Pos: Pos{File: d.file}, Msg: err.Error(), Hint: "the rest of the file was not read"}
	var syntax *unstable.ParserError
	if errors.As(err, &syntax) {
		e.Pos = d.pos(int(d.parser.Range(syntax.Highlight).Offset))
		e.Msg = syntax.Message
	}
	return e
}

// checkGrammar holds the file against the rules of TOML that concern several
// lines, such as that a table written inline may not be added to.
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
