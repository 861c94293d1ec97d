package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// A mask of a file has the file's length. Bytes that people read stay. Others are NUL, which no
// pattern matches, or a space, where a text continues after them.

// mask returns the mask of a file, or nil if nothing in such a file is read. all adds the Go
// comments that no documentation shows.
func mask(name string, text []byte, all bool) ([]byte, error) {
	switch filepath.Ext(name) {
	case ".go":
		if strings.HasSuffix(name, "_test.go") {
			return nil, nil
		}
		return maskGo(name, text, all)
	case ".md":
		return maskMarkdown(text), nil
	case ".js", ".mjs":
		return maskScript(text), nil
	case ".html":
		return maskHTML(text), nil
	case ".toml", ".yaml", ".yml", ".service":
		return maskComments(text, "#"), nil
	}
	if filepath.Base(name) == "Makefile" {
		return maskComments(text, "## "), nil
	}
	return nil, nil
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// maskGo shows string constants that hold a space, package comments, and comments of exported names.
func maskGo(name string, text []byte, all bool) ([]byte, error) {
	if generated.Match(text) {
		return nil, nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := goMask{text: text, out: make([]byte, len(text)), at: func(p token.Pos) int { return files.Position(p).Offset }}
	ast.Inspect(file, g.strings)
	g.comment(file.Doc)
	if all {
		for _, c := range file.Comments {
			g.comment(c)
		}
		return g.out, nil
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv)) {
				g.comment(d.Doc, d.Name)
			}
		case *ast.GenDecl:
			g.declaration(d)
		}
	}
	return g.out, nil
}

type goMask struct {
	text, out []byte
	at        func(token.Pos) int
}

// declaration shows the comments of exported types, constants and variables.
func (g *goMask) declaration(d *ast.GenDecl) {
	exported := false
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			exported = true
			g.comment(s.Doc, s.Name)
			g.comment(s.Comment, s.Name)
			if len(d.Specs) == 1 {
				g.comment(d.Doc, s.Name)
			}
			ast.Inspect(s.Type, func(n ast.Node) bool {
				if f, ok := n.(*ast.Field); ok && (len(f.Names) == 0 || exportedAny(f.Names)) {
					g.comment(f.Doc, f.Names...)
					g.comment(f.Comment, f.Names...)
				}
				return true
			})
		case *ast.ValueSpec:
			if exportedAny(s.Names) {
				exported = true
				g.comment(s.Doc, s.Names...)
				g.comment(s.Comment, s.Names...)
				if len(d.Specs) == 1 {
					g.comment(d.Doc, s.Names...)
				}
			}
		}
	}
	if exported && len(d.Specs) > 1 {
		g.comment(d.Doc)
	}
}

func exportedAny(names []*ast.Ident) bool {
	for _, n := range names {
		if n.IsExported() {
			return true
		}
	}
	return false
}

// exportedReceiver reports whether the type of a receiver is exported.
func exportedReceiver(recv *ast.FieldList) bool {
	t := recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// comment shows a comment without the names that it documents; its markers become spaces.
func (g *goMask) comment(c *ast.CommentGroup, names ...*ast.Ident) {
	if c == nil {
		return
	}
	from, to := g.at(c.Pos()), g.at(c.End())
	copy(g.out[from:to], g.text[from:to])
	for _, line := range c.List {
		i := g.at(line.Pos())
		copy(g.out[i:], "  ")
		if strings.HasPrefix(line.Text, "//go:") || strings.HasPrefix(line.Text, "//nolint") {
			clear(g.out[i : i+len(line.Text)])
		}
	}
	for _, n := range names {
		for _, m := range regexp.MustCompile(`\b`+n.Name+`\b`).FindAllIndex(g.text[from:to], -1) {
			clear(g.out[from+m[0] : from+m[1]])
		}
	}
}

// strings shows the string constants under a node. Constants that are added are one text.
func (g *goMask) strings(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.Field:
		if n.Tag != nil { // everything but the tag
			ast.Inspect(n.Type, g.strings)
			return false
		}
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			g.literal(n)
		}
	case *ast.BinaryExpr:
		if n.Op == token.ADD && isLiteral(n.Y) {
			ast.Inspect(n.X, g.strings)
			g.literal(n.Y.(*ast.BasicLit))
			if left, ok := last(n.X).(*ast.BasicLit); ok && left.Kind == token.STRING {
				g.join(g.at(left.End())-1, g.at(n.Y.Pos())+1)
			}
			return false
		}
	}
	return true
}

// last is the operand at the right end of a sum.
func last(e ast.Expr) ast.Expr {
	for {
		b, ok := e.(*ast.BinaryExpr)
		if !ok {
			return e
		}
		e = b.Y
	}
}

func isLiteral(e ast.Expr) bool {
	b, ok := e.(*ast.BasicLit)
	return ok && b.Kind == token.STRING
}

func (g *goMask) join(from, to int) {
	for i := from; i < to; i++ {
		g.out[i] = ' '
	}
}

// escapes are those of white space in an interpreted string.
var escapes = regexp.MustCompile(`\\[ntr]`)

func (g *goMask) literal(b *ast.BasicLit) {
	from, to := g.at(b.Pos())+1, g.at(b.End())-1
	body := g.text[from:to]
	if !bytes.ContainsAny(body, " \n") {
		return
	}
	if b.Value[0] == '"' {
		body = escapes.ReplaceAll(body, []byte("  "))
	}
	copy(g.out[from:to], body)
}

var (
	codeSpan = regexp.MustCompile("(?s)``.+?``|`[^`]+`")
	target   = regexp.MustCompile(`\]\([^)\s]*\)|<?https?://\S+|(?s)<!--.*?-->`)
)

// maskMarkdown shows Markdown without code and the targets of links.
func maskMarkdown(text []byte) []byte {
	out := bytes.Clone(text)
	fence, at := "", 0
	for line := range bytes.SplitAfterSeq(text, []byte("\n")) {
		trimmed := bytes.TrimLeft(line, " \t>")
		mark := ""
		for _, m := range []string{"```", "~~~"} {
			if bytes.HasPrefix(trimmed, []byte(m)) {
				mark = m
			}
		}
		switch {
		case fence == "" && mark != "":
			fence = mark
			clear(out[at : at+len(line)])
		case fence != "":
			if mark == fence {
				fence = ""
			}
			clear(out[at : at+len(line)])
		}
		at += len(line)
	}
	for _, hide := range []*regexp.Regexp{codeSpan, target} {
		for _, m := range hide.FindAllIndex(out, -1) {
			clear(out[m[0]:m[1]])
		}
	}
	for i, b := range out {
		switch b {
		case '|':
			out[i] = 0
		case '*', '>':
			out[i] = ' '
		}
	}
	return paragraphs(text, out)
}

// paragraphs hides empty lines, so that no phrase begins in one paragraph and ends in the next.
func paragraphs(text, out []byte) []byte {
	for i := 1; i < len(text); i++ {
		if text[i] == '\n' && text[i-1] == '\n' {
			out[i] = 0
		}
	}
	return out
}

// maskScript shows the strings of a JavaScript file that hold a space, roughly: it knows comments,
// and regular expressions where a value may begin.
func maskScript(text []byte) []byte {
	out := make([]byte, len(text))
	value := true // whether a value may begin here, so that / begins a regular expression
	for i := 0; i < len(text); {
		switch b := text[i]; {
		case bytes.HasPrefix(text[i:], []byte("//")):
			i = after(text, i, "\n")
		case bytes.HasPrefix(text[i:], []byte("/*")):
			i = after(text, i+2, "*/")
		case b == '\'' || b == '"' || b == '`' || b == '/' && value:
			end := i + 1
			for end < len(text) && text[end] != b && (b == '`' || text[end] != '\n') {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end, len(text))
			if body := text[i+1 : end]; b != '/' && bytes.ContainsRune(body, ' ') {
				copy(out[i+1:], body)
			}
			i, value = end+1, false
		default:
			if b > ' ' {
				value = bytes.IndexByte([]byte("(,=:[!&|?{};+-*%<>~^"), b) >= 0
			}
			i++
		}
	}
	return out
}

// after is the place after the next mark.
func after(text []byte, from int, mark string) int {
	i := bytes.Index(text[from:], []byte(mark))
	if i < 0 {
		return len(text)
	}
	return from + i + len(mark)
}

var (
	element   = regexp.MustCompile(`(?s)<!--.*?-->|<style\b.*?</style>|<[!/a-zA-Z][^>]*>`)
	script    = regexp.MustCompile(`(?s)(<script\b[^>]*>)(.*?)</script>`)
	attribute = regexp.MustCompile(`(?s)\b(?:title|alt|placeholder|aria-label)="([^"]*)"`)
)

// maskHTML shows the text of a page, the attributes that people read, and the strings of its scripts.
func maskHTML(text []byte) []byte {
	out := bytes.Clone(text)
	for _, m := range script.FindAllSubmatchIndex(text, -1) {
		copy(out[m[4]:m[5]], maskScript(text[m[4]:m[5]]))
	}
	for _, m := range element.FindAllIndex(text, -1) {
		clear(out[m[0]:m[1]])
		for _, a := range attribute.FindAllSubmatchIndex(text[m[0]:m[1]], -1) {
			copy(out[m[0]+a[2]:], text[m[0]+a[2]:m[0]+a[3]])
		}
	}
	return out
}

// maskComments shows what stands after a mark at the start of a line or after a space.
func maskComments(text []byte, mark string) []byte {
	out := make([]byte, len(text))
	at, before := 0, false
	for line := range bytes.SplitAfterSeq(text, []byte("\n")) {
		i := bytes.Index(line, []byte(mark))
		if i < 0 || i > 0 && line[i-1] != ' ' && line[i-1] != '\t' {
			at, before = at+len(line), false
			continue
		}
		copy(out[at+i:at+len(line)], line[i:])
		for j := at + i; text[j] == '#'; j++ {
			out[j] = ' '
		}
		if before && len(bytes.TrimSpace(line[:i])) == 0 { // a comment that continues
			for j := at; j < at+i; j++ {
				out[j] = ' '
			}
		}
		at, before = at+len(line), true
	}
	return out
}
