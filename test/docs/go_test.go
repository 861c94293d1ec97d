//go:build unix && !race

package docs

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestGo type-checks the Go files that documents have in full.
func TestGo(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	imported := make(map[string]bool)
	var parsed []*ast.File
	for _, page := range pages(t) {
		for _, f := range fences(t, page) {
			if f.language() != "go" || f.file() != "" {
				continue
			}
			// The position in an error is the document's.
			text := fmt.Sprintf("//line %s:%d\n%s", f.page, f.line+1, f.text)
			file, err := parser.ParseFile(files, f.page, text, parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%v: %v; a part of a file names it: ```go FILE", f, err)
				continue
			}
			for _, i := range file.Imports {
				path, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				imported[path] = true
			}
			parsed = append(parsed, file)
		}
	}
	if len(parsed) == 0 {
		t.Fatal("no document has a Go file")
	}
	compiled := exports(t, slices.Sorted(maps.Keys(imported)))
	lookup := func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, fmt.Errorf("nothing imports %s", path)
		}
		return os.Open(compiled[path])
	}
	checker := types.Config{Importer: importer.ForCompiler(files, "gc", lookup), Error: func(err error) { t.Error(err) }}
	for _, file := range parsed {
		_, _ = checker.Check("main", files, []*ast.File{file}, nil) // Error reports each error
	}
}

// exports are the files with what compiled packages export, also of those that they import.
func exports(t *testing.T, packages []string) map[string]string {
	t.Helper()
	list := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	cmd := exec.CommandContext(t.Context(), "go", append(list, packages...)...)
	cmd.Dir = root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(errors.Join(err, errors.New(errs.String())))
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if path, file, found := strings.Cut(strings.TrimSpace(line), " "); found {
			files[path] = file
		}
	}
	return files
}
