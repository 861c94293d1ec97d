package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree makes a folder with the given files, each with its own path as content,
// and makes it the working directory.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFiles(t *testing.T) {
	dir := tree(t, "a.txt", "B.txt", "c.md", "x/1.txt", "x/2.txt", "x/y/1.txt", "x/y/z/3.txt", "x.d/4.txt", ".hidden.txt", "odd[1].txt",
		"odd1.txt", "odd[1]/[2].txt")
	links := map[string]string{"x/link.txt": filepath.Join(dir, "c.md"), "x/gone.txt": "nowhere", "linked": "x", "x/loop": ".."}
	for name, to := range links {
		if err := os.Symlink(to, name); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	if err := os.Mkdir("folder.txt", 0o755); err != nil {
		t.Fatal(err)
	}
	abs := func(names ...string) []string {
		for i, n := range names {
			names[i] = filepath.Join(dir, n)
		}
		return names
	}
	for _, tc := range []struct {
		patterns, want []string
	}{
		{[]string{"a.txt"}, []string{"a.txt"}},
		{[]string{"./a.txt", "a.txt", "?.txt"}, []string{"B.txt", "a.txt"}},
		{[]string{"*.txt"}, []string{".hidden.txt", "B.txt", "a.txt", "odd1.txt", "odd[1].txt"}},
		{[]string{"x/*.txt"}, []string{"x/1.txt", "x/2.txt", "x/link.txt"}},
		{[]string{"x/**/*.txt"}, []string{"x/1.txt", "x/2.txt", "x/link.txt", "x/y/1.txt", "x/y/z/3.txt"}},
		{[]string{"x/**/**/3.txt", "**/y/**/1.txt"}, []string{"x/y/1.txt", "x/y/z/3.txt"}},
		{[]string{"x*/*.txt"}, []string{"x.d/4.txt", "x/1.txt", "x/2.txt", "x/link.txt"}}, // '.' sorts before '/'
		// through links, as data often lies on another disk; x/1.txt is the same file
		{[]string{"*/1.txt"}, []string{"linked/1.txt"}},
		{[]string{"x/y/**"}, []string{"x/y/1.txt", "x/y/z/3.txt"}},
		{[]string{"x/y"}, []string{"x/y/1.txt", "x/y/z/3.txt"}},
		{[]string{"./x/y/", "odd[1]"}, []string{"odd[1]/[2].txt", "x/y/1.txt", "x/y/z/3.txt"}},
		{[]string{"**/1.txt"}, []string{"x/1.txt", "x/y/1.txt"}},
		{[]string{"x/../**/4.txt"}, []string{"x.d/4.txt"}},
		{[]string{"linked/*.txt"}, []string{"linked/1.txt", "linked/2.txt", "linked/link.txt"}},
		{[]string{"linked/**/3.txt"}, []string{"linked/y/z/3.txt"}},
		{[]string{"odd[1].txt"}, []string{"odd[1].txt"}},
		{[]string{"odd[0-9].txt"}, []string{"odd1.txt"}},
		{[]string{"odd\\[1].tx*"}, []string{"odd[1].txt"}},
		{[]string{filepath.Join(dir, "**/1.txt")}, abs("x/1.txt", "x/y/1.txt")},
		{[]string{filepath.Join(dir, "a.txt")}, abs("a.txt")},
		{nil, nil},
	} {
		got, err := Files(tc.patterns)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("Files(%q) = %q, %v, want %q", tc.patterns, got, err, tc.want)
		}
	}
}

// TestFind: a file is read once, whatever its names are, and what matches without being a file is told.
func TestFind(t *testing.T) {
	dir := tree(t, "a.txt", "b.txt", "x/1.txt", "x/y.txt/2.txt")
	for name, to := range map[string]string{"a2.txt": "a.txt", "a3.txt": "a2.txt", "gone.txt": "nowhere", "far": "x"} {
		if err := os.Symlink(to, name); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	if err := os.Mkdir("folder.txt", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ patterns, files, again, other []string }{
		{[]string{"?.txt"}, []string{"a.txt", "b.txt"}, nil, nil},
		{[]string{"a*.txt"}, []string{"a.txt"}, []string{"a2.txt", "a3.txt"}, nil},
		{[]string{"a3.txt", "a.txt"}, []string{"a.txt"}, []string{"a3.txt"}, nil},
		{[]string{"b.txt", "./b.txt"}, []string{"b.txt"}, nil, nil},
		{[]string{"b.txt", filepath.Join(dir, "b.txt")}, []string{filepath.Join(dir, "b.txt")}, []string{"b.txt"}, nil},
		{[]string{"b.txt", "*.txt"}, []string{"a.txt", "b.txt"}, []string{"a2.txt", "a3.txt"},
			[]string{`"folder.txt" (a folder)`, `"gone.txt" (a broken link)`}},
		{[]string{"*/1.txt"}, []string{"far/1.txt"}, []string{"x/1.txt"}, nil},
		{[]string{"x/**"}, []string{"x/1.txt", "x/y.txt/2.txt"}, nil, nil},
		{[]string{"x/**/*.txt"}, []string{"x/1.txt", "x/y.txt/2.txt"}, nil, nil},
		{[]string{"x/*"}, []string{"x/1.txt"}, nil, []string{`"x/y.txt" (a folder)`}},
	} {
		got, err := Find(tc.patterns)
		if err != nil || !slices.Equal(got.Files, tc.files) || !slices.Equal(got.Again, tc.again) || !slices.Equal(got.Other, tc.other) {
			t.Errorf("%q: %+v, %v; want %+v", tc.patterns, got, err, tc)
		}
		if all := got.All(); len(all) != len(got.Files)+len(got.Again) || !slices.IsSorted(all) {
			t.Errorf("%q: all are %q", tc.patterns, all)
		}
	}
	for _, pattern := range []string{"gone*", "folder*"} {
		if _, err := Find([]string{pattern}); err == nil || !strings.Contains(err.Error(), "matches no file") {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func TestFilesErrors(t *testing.T) {
	dir := tree(t, "a.txt", "x/1.txt")
	if err := os.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	for pattern, says := range map[string][]string{
		"b.txt":     {`"b.txt" does not exist`, dir},
		"":          {`"" does not exist`},
		"*.md":      {`"*.md" matches no file`, dir},
		"y/**":      {`"y/**" matches no file`},
		"a.txt/*":   {`"a.txt/*" matches no file`},
		"a.txt/**":  {`"a.txt/**" matches no file`},
		"?":         {`"?" matches no file`}, // it matches the folder x
		"empty":     {`the folder "empty" has no files`, dir},
		"x/[a.txt":  {"malformed", `"[a.txt"`},
		"none/[":    {"malformed"},
		"x/1.txt/2": {"x/1.txt/2"},
	} {
		got, err := Files([]string{"a.txt", pattern})
		if err == nil {
			t.Errorf("%q: no error, but %q", pattern, got)
			continue
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q: %q does not say %q", pattern, err, s)
			}
		}
	}
}

func TestFilesReportsWhatItMayNotRead(t *testing.T) {
	tree(t, "a/1.txt", "b/2.txt")
	if err := os.Chmod("a", 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Chmod("a", 0o755); err != nil {
			t.Error(err)
		}
	}()
	if _, err := os.ReadDir("a"); err == nil {
		t.Skip("this user may read everything")
	}
	if got, err := Files([]string{"**/*.txt"}); err == nil || !strings.Contains(err.Error(), "a") {
		t.Errorf("%q, %v", got, err)
	}
}

// Whatever the pattern, the result is sorted, without doubles, and files.
func FuzzFiles(f *testing.F) {
	for _, p := range []string{"**", "**/*.txt", "a*/[^b]/?", "x/**/**/y", "\\", "[", "a//b/./c", ""} {
		f.Add(p)
	}
	dir := f.TempDir()
	for _, name := range []string{"a", "x/b", "x/y/c.txt", "x/[/d"} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			f.Fatal(err)
		}
		write(f, name, nil)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if strings.Contains(pattern, "..") {
			t.Skip("may lead out of the folder, to anywhere on this machine")
		}
		got, err := Files([]string{dir + "/" + pattern, dir + "/**"})
		if err != nil {
			return
		}
		if len(got) != 4 || !slices.IsSorted(got) {
			t.Fatalf("%q: %q", pattern, got)
		}
	})
}
