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
	sections := reflect.TypeFor[Config]()
	for i := range sections.NumField() {
		s := sections.Field(i)
		if s.Type.Kind() != reflect.Struct || s.Tag.Get("toml") == "" {
			continue
		}
		for k := range s.Type.NumField() {
			f := s.Type.Field(k)
			key := s.Tag.Get("toml") + "." + f.Tag.Get("toml")
			read := regexp.MustCompile(`\.` + f.Name + `\b`).MatchString(text.String())
			for method, of := range methods {
				read = read || of == key && strings.Contains(text.String(), "."+method)
			}
			if !read {
				t.Errorf("nothing reads %s (%s.%s)", key, s.Name, f.Name)
			}
		}
	}
}
