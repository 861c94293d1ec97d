package builtin

import (
	"embed"
	"strings"
)

// suffix is that of a file with a template.
const suffix = ".jinja"

//go:embed *.jinja
var files embed.FS

// Names returns the names of the templates, sorted.
func Names() (names []string) {
	entries, _ := files.ReadDir(".") // embedded: it cannot fail
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	return names
}

// Source returns the template with a name.
func Source(name string) (source string, ok bool) {
	b, err := files.ReadFile(name + suffix)
	return string(b), err == nil && !strings.Contains(name, "/")
}
