package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// bindsFlag matches the methods of a flag set that bind a flag to a variable.
var bindsFlag = regexp.MustCompile(`^(String|Bool|Int|Int64|Uint64|Float64|Duration|StringSlice|StringArray|IntSlice|Count)?VarP?F?$`)

// TestFlagsAreRead: every variable that a flag is bound to is read somewhere, by its name. A flag that nothing reads
// would silently have no effect.
func TestFlagsAreRead(t *testing.T) {
	bound, read := make(map[string]token.Position), make(map[string]bool)
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" || d.Name() == "node_modules" ||
			d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		own := filepath.Dir(path) == filepath.Join("..", "cli")
		assigned := make(map[ast.Node]bool)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt: // setting a default is not a read
				for _, to := range n.Lhs {
					assigned[to] = true
				}
			case *ast.CallExpr:
				method, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !own || !bindsFlag.MatchString(method.Sel.Name) || len(n.Args) < 3 {
					break
				}
				if at, ok := n.Args[0].(*ast.UnaryExpr); ok && at.Op == token.AND {
					switch to := at.X.(type) {
					case *ast.SelectorExpr:
						bound[to.Sel.Name], assigned[to] = files.Position(n.Pos()), true
					case *ast.Ident:
						bound[path+" "+to.Name], assigned[to] = files.Position(n.Pos()), true
					}
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					assigned[name] = true
				}
			case *ast.Ident:
				if !assigned[n] {
					read[path+" "+n.Name] = true
				}
			case *ast.SelectorExpr:
				if name := n.Sel.Name; !assigned[n] && (own || ast.IsExported(name)) {
					read[name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(bound) < 50 {
		t.Fatalf("%d flags were found", len(bound))
	}
	for name, at := range bound {
		if !read[name] {
			t.Errorf("%s: nothing reads %s, which a flag is bound to", at, name)
		}
	}
}
