package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestKeysAreRead: the program reads every key's field outside of this package: one that nothing reads would be accepted and do
// nothing.
func TestKeysAreRead(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || path == filepath.Join(root, "config") || d.Name() == "examples"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".pb.go"):
			content, err := os.ReadFile(path)
			text.Write(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]string{"TokenizerPath": "data.tokenizer", "Text()": "data.format"} // which read keys for others
	for key, p := range places {
		t.Run(key, func(t *testing.T) {
			in := reflect.TypeFor[Config]()
			if p.array != nil {
				in = in.FieldByIndex(p.array).Type.Elem()
			}
			f := in.FieldByIndex(p.field)
			read := regexp.MustCompile(`\.` + f.Name + `\b`).MatchString(text.String())
			for method, of := range methods {
				read = read || of == key && strings.Contains(text.String(), "."+method)
			}
			if !read {
				t.Errorf("nothing reads %s (%s)", key, f.Name)
			}
		})
	}
}
