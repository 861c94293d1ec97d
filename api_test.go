package troupe_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

var update = flag.Bool("update", false, "write the golden files of the API again")

// TestAPI: what services program against changes only with its golden file, which has what go doc
// -all shows, but made here, so that no version of that command is needed.
func TestAPI(t *testing.T) {
	for name, dir := range map[string]string{"troupe": ".", "config": "config", "event": "telemetry/event", "infer": "infer"} {
		golden := filepath.Join("testdata", "api", name+".txt")
		got := api(t, dir)
		if *update {
			testrun.Write(t, golden, got)
		}
		if want := strings.ReplaceAll(testrun.Read(t, golden), "\r\n", "\n"); got != want {
			t.Errorf("the API of %s is not that of %s: if it is meant to change, go test -run TestAPI . -update\n%s", name, golden,
				firstDifference(want, got))
		}
	}
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d was %q and is %q", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("it had %d lines and has %d", len(a), len(b))
}

// parsed are the files of a package, but its tests, with the oldest names first.
func parsed(t *testing.T, dir string) (*token.FileSet, []*ast.File) {
	t.Helper()
	names, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	set, files := token.NewFileSet(), []*ast.File(nil)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return set, files
}

// api lists what a package exports, with its comments.
func api(t *testing.T, dir string) string {
	t.Helper()
	set, files := parsed(t, dir)
	p, err := doc.NewFromFiles(set, files, "github.com/troupe-ml/troupe")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	text := func(indent, s string) {
		for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
			b.WriteString(strings.TrimRight(indent+line, " \t") + "\n")
		}
	}
	decl := func(comment string, d ast.Decl) {
		switch d := d.(type) { // the comment follows
		case *ast.FuncDecl:
			d.Doc, d.Body = nil, nil
		case *ast.GenDecl:
			d.Doc = nil
		}
		if err := (&printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}).Fprint(&b, set, d); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
		if comment != "" {
			text("    ", comment)
		}
		b.WriteString("\n")
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			decl(v.Doc, v.Decl)
		}
	}
	funcs := func(all []*doc.Func) {
		for _, f := range all {
			decl(f.Doc, f.Decl)
		}
	}
	b.WriteString("package " + p.Name + "\n\n")
	text("", p.Doc)
	b.WriteString("\n")
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		decl(typ.Doc, typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	return b.String()
}

// TestFieldsAreListed: the comment of an alias for an event or a status names its fields, which go doc does not show.
func TestFieldsAreListed(t *testing.T) {
	text := testrun.Read(t, filepath.Join("testdata", "api", "troupe.txt"))
	for _, of := range []reflect.Type{reflect.TypeFor[troupe.StepEvent](), reflect.TypeFor[troupe.CheckpointEvent](),
		reflect.TypeFor[troupe.StallEvent](), reflect.TypeFor[troupe.PauseEvent](), reflect.TypeFor[troupe.RestartEvent](),
		reflect.TypeFor[troupe.WarningEvent](), reflect.TypeFor[troupe.EndEvent](), reflect.TypeFor[troupe.Status]()} {
		// The comment is before the type in a group of types, else after it.
		before, after, _ := strings.Cut(text, of.Name()+" = event."+of.Name())
		i := max(0, strings.LastIndex(before, "// "+of.Name()+": "))
		comment, _, _ := strings.Cut(after, "\n\ntype ")
		if !strings.HasSuffix(before, "type ") {
			comment = before[i:]
		}
		for _, f := range reflect.VisibleFields(of) {
			if !f.Anonymous && !regexp.MustCompile(`\b`+f.Name+`\b`).MatchString(comment) {
				t.Errorf("the comment of troupe.%s does not list its field %s", of.Name(), f.Name)
			}
		}
	}
}

// TestNoState: runs share no variables. The package's are errors, which nobody writes to.
func TestNoState(t *testing.T) {
	_, files := parsed(t, ".")
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					if !strings.HasPrefix(name.Name, "Err") && !strings.HasPrefix(name.Name, "err") && name.Name != "_" {
						t.Errorf("the variable %s outlives runs", name.Name)
					}
				}
			}
		}
	}
}
