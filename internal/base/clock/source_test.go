package clock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wallMethods are the methods of time.Time that drop the monotonic reading, or show the time of the wall clock.
var wallMethods = map[string]bool{"Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true, "Round": true, "Truncate": true,
	"UTC": true, "Local": true, "In": true, "Format": true, "AppendFormat": true}

// isTime reports whether an expression calls a function of package time.
func isTime(e ast.Expr, names ...string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	of, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if pkg, ok := of.X.(*ast.Ident); !ok || pkg.Name != "time" {
		return false
	}
	for _, name := range names {
		if of.Sel.Name == name {
			return true
		}
	}
	return false
}

// TestWallClock: the program takes the wall clock's time from this package alone, so that durations and order, for
// which there is time.Now, can't come from it by mistake.
func TestWallClock(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); name == ".git" || name == "bench" || name == "testdata" ||
				path == filepath.Join(root, "internal", "base", "clock") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
				return fs.SkipDir // a module of its own
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		looked++
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if of, ok := call.Fun.(*ast.SelectorExpr); ok && wallMethods[of.Sel.Name] && isTime(of.X, "Now") {
				t.Errorf("%s: time.Now().%s is the wall clock: use clock.Now or clock.At, and time.Since for durations", files.Position(call.Pos()),
					of.Sel.Name)
			}
			if isTime(call, "Since", "Until") && len(call.Args) == 1 && isTime(call.Args[0], "Unix", "UnixMilli", "UnixMicro", "Parse") {
				t.Errorf("%s: a duration from a time without a monotonic reading", files.Position(call.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil || looked < 100 {
		t.Fatalf("looked at %d files: %v", looked, err)
	}
}
